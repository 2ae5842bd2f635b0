"""Compare learners that get the same time: areas on unseen examples against the seconds that a ranking took.

    python benchmarks/learners.py --model smollm2 --task ioi --seconds 60 180
    python benchmarks/learners.py --model known/ioi --task known/ioi --seconds 10

Every learner has its default settings, and as many steps as fit into the time; a step of each is timed first. Learners
of masks divide the time among three masks. Greedy on EAP-IG and calibrated scores take what they take. All circuits
have equal size.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import time
from dataclasses import replace
from datetime import date

from edgewise import CMD, CPR, Ranking, Settings, evaluate_circuits, load_model, load_task, score_edges, summarise
from edgewise.evaluate import Curve, Measure, resample
from edgewise.learn import Calibrated, EdgePruning, Learner, Matryoshka, TopKLearner, UniformGradientSampling
from edgewise.learn.run_learner import learn_ranking
from edgewise.models import Model
from edgewise.recipes.forecast import CHECK_SHARE, LearnWork, Timer
from edgewise.recipes.recipe import GREEDY, select_circuits
from edgewise.runtime import Session
from edgewise.runtime.local_engine import Local
from edgewise.runtime.progress import progress_bars
from edgewise.tasks import Task

SETTINGS = Settings(fill=True)
LEARNERS: tuple[Learner, ...] = (
    TopKLearner(),
    Matryoshka(),
    EdgePruning(sizes=(0.02, 0.1, 0.3)),
    UniformGradientSampling(penalties=(1e-4, 1e-3, 1e-2)),
)


def main() -> None:
    """Learn, evaluate and print a table as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--task", default="ioi")
    for name, count in (("train", 64), ("validation", 32), ("test", 96)):
        parser.add_argument(f"--{name}", type=int, default=count, help="number of prompts")
    parser.add_argument("--seconds", type=float, nargs="+", default=[20.0], help="for one ranking")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    model = load_model(args.model)
    train, validation, test = (
        load_task(args.task, model, split, getattr(args, split), args.seed) for split in ("train", "validation", "test")
    )
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    print(f"{date.today():%d %B %Y}, commit {commit}, {os.cpu_count()} cores ({platform.machine()}): {args}\n")
    print("| measure | learner | steps | seconds | area | minus greedy's |\n|---|---|---:|---:|---:|---:|", flush=True)
    with progress_bars() as progress, Local() as engine:
        session = Session(engine=engine, progress=progress)
        for measure in (CMD, CPR):
            started = time.perf_counter()
            ranking = summarise(score_edges(model, train, session=session)).ranking
            greedy = resample(curve(model, test, ranking, measure, session), measure)
            print(f"| {measure.name} | greedy | | {time.perf_counter() - started:.0f} | {greedy.estimate:.4f} | |")
            learners: list[Learner] = [Calibrated(measure)] if measure.has_target else []
            for seconds in args.seconds:
                learners += [fit(each.for_measure(measure), seconds, model, train, engine) for each in LEARNERS]
            for learner in learners:
                started = time.perf_counter()
                ranking = learn_ranking(model, train, learner, validation=validation, session=session)
                taken = time.perf_counter() - started
                area = resample(curve(model, test, ranking, measure, session), measure)
                less, steps = area.minus(greedy), getattr(learner, "steps", 0)
                difference = f"{less.verdict} {less.difference:+.4f} [{less.low:+.4f}, {less.high:+.4f}]"
                row = (measure.name, learner.name, f"{steps:,}", f"{taken:.0f}", f"{area.estimate:.4f}", difference)
                print("|", " | ".join(row), "|", flush=True)


def fit(learner: Learner, seconds: float, model: Model, task: Task, engine: Local) -> Learner:
    """Return the learner with as many steps as fit into the time."""
    work = LearnWork(task, SETTINGS, learner)
    stage = work.plan(model, engine)
    per_step = work.time(stage, Timer(model, engine)).with_workers(engine.workers(model)) / learner.steps  # type: ignore[attr-defined]
    if isinstance(learner, TopKLearner) and learner.validate:
        per_step *= 1 + CHECK_SHARE
    return replace(learner, steps=max(1, int(seconds / per_step)))  # type: ignore[type-var]


def curve(model: Model, test: Task, ranking: Ranking, measure: Measure, session: Session) -> Curve:
    """Return the faithfulness of the ranking's circuits on test."""
    selections = select_circuits(ranking, GREEDY, measure, SETTINGS)
    circuits = [selection.circuit for selection in selections]
    evaluation = evaluate_circuits(model, test, circuits, session=session)
    counts = tuple(circuit.n_edges for circuit in circuits)
    return Curve(SETTINGS.sizes, counts, counts, evaluation.values, evaluation.full, evaluation.empty)


if __name__ == "__main__":
    main()
