"""Compare learned rankings and portfolios with greedy on EAP-IG: circuits of equal size, on unseen examples.

    python benchmarks/learned.py --model smollm2 --task ioi --seeds 3 --out results/learned-smollm2-ioi
    python benchmarks/learned.py --model MODEL --task stories-0.jsonl stories-1.jsonl --out results/learned-stories
    python benchmarks/learned.py --task ioi --budget 3 --out results/learned-demo        # as `edgewise run` plans it

Rankings are learned on train, validation examples stop learning and choose the portfolio, and the results are for test.
Greedy fills its circuits to the requested size, so that all sizes are equal. Each seed draws other examples; of task
files, seed 0 reads the first, seed 1 the second. Each seed has a result folder like that of `edgewise run`, OUT/seed-0
and so on; the tables are in OUT/table.md. Run a stopped command again to resume.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
from datetime import date
from pathlib import Path

import numpy as np

from edgewise import (
    CMD,
    CPR,
    Discovery,
    Settings,
    Store,
    TopKLearner,
    discover,
    load_model,
    load_task,
    read_result,
    write_result,
)
from edgewise.evaluate import Measure
from edgewise.evaluate.intervals import resample_heights
from edgewise.recipes.discovery import Outcome
from edgewise.recipes.forecast import plan_learning
from edgewise.recipes.recipe import GREEDY, PORTFOLIO, learned_recipes, merge_recipes
from edgewise.runtime import Session
from edgewise.runtime.local_engine import Local
from edgewise.runtime.progress import progress_bars

SPLITS = ("train", "validation", "test")
NAMES = (GREEDY.name, "Learned", PORTFOLIO)


def main() -> None:
    """Learn and evaluate with every seed, then print and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--task", nargs="+", default=["ioi"])
    for name, count in zip(SPLITS, (64, 32, 64), strict=True):
        parser.add_argument(f"--{name}", type=int, default=count, help="number of prompts")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--steps", type=int, default=TopKLearner.steps)
    parser.add_argument("--batch", type=int, default=TopKLearner.batch)
    parser.add_argument("--budget", type=float, help="minutes for both rankings; steps and batch are at most the above")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    discoveries = [run_seed(args, seed) for seed in range(max(args.seeds, len(args.task)))]
    text = "\n".join((describe_run(args, discoveries), "", *area_table(discoveries), "", *size_table(discoveries), ""))
    (args.out / "table.md").write_text(text)
    print(text)


def run_seed(args: argparse.Namespace, seed: int) -> Discovery:
    """Return the result for one seed, which is read if an earlier call wrote it."""
    folder = args.out / f"seed-{seed}"
    if folder.exists():
        return read_result(folder)
    model, name = load_model(args.model), args.task[seed % len(args.task)]
    train, validation, test = (load_task(name, model, split, getattr(args, split), seed) for split in SPLITS)
    args.out.mkdir(parents=True, exist_ok=True)
    store, settings = Store(args.out / f".seed-{seed}.partial").open(), Settings(fill=True)
    with progress_bars() as progress, Local() as engine:
        session = Session(store=store, engine=engine, progress=progress)
        learner = TopKLearner(steps=args.steps, batch=args.batch, seed=seed)
        if args.budget is not None:
            plan = plan_learning(model, train, settings, learner, args.budget, session)
            if plan.learner is None:
                sys.exit(f"nothing can be learned in {args.budget} minutes: it takes {plan.seconds / 60:.1f}")
            learner = plan.learner
        recipes = merge_recipes({measure: (GREEDY,) for measure in (CMD, CPR)}, learned_recipes(learner))
        discovery = discover(model, train, test, settings, recipes, validation=validation, session=session)
    write_result(discovery, folder)
    store.remove()
    return discovery


def describe_run(args: argparse.Namespace, discoveries: list[Discovery]) -> str:
    """Return the command, date, commit and machine in a paragraph."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    steps = sorted({(learner.steps, learner.batch) for each in discoveries for learner in each.learned})
    command = " ".join(["python benchmarks/learned.py", *sys.argv[1:-2], "--out OUT"])
    return (
        f"`{command}`, {date.today():%d %B %Y}, commit {commit}, {os.cpu_count()} cores ({platform.machine()}). "
        f"{args.train} train, {args.validation} validation and {args.test} test prompts, "
        f"{' or '.join(f'{count} steps of {batch}' for count, batch in steps)}."
    )


def area_table(discoveries: list[Discovery]) -> list[str]:
    """Return a table with a row per measure and seed, and the means over seeds."""
    lines = [
        "| measure | seed | greedy | learned | of greedy's | minus greedy's | portfolio | worse sizes | seconds |",
        "|---|---:|---:|---:|---:|---:|---:|---|---:|",
    ]
    for measure in (CMD, CPR):
        ratios = []
        for seed, discovery in enumerate(discoveries):
            outcomes = outcomes_by_name(discovery, measure)
            greedy, learned, portfolio = (outcomes[name] for name in NAMES)
            less = learned.resampled.minus(greedy.resampled)
            ratios.append(learned.area / greedy.area)
            ranking = discovery.learned[learned.recipe.learner]
            lines.append(
                f"| {measure.name} | {seed} | {greedy.area:.4f} | {learned.area:.4f} | {ratios[-1]:.2f} | "
                f"{less.verdict} {less.difference:+.4f} [{less.low:+.4f}, {less.high:+.4f}] | {portfolio.area:.4f} | "
                f"{worse_sizes(greedy, learned) or 'none'} | {ranking.origin['seconds']:.0f} |"
            )
        mean = f"**{np.mean(ratios):.2f}** ({min(ratios):.2f} to {max(ratios):.2f})"
        lines.append(f"| {measure.name} | mean | | | {mean} | | | | |")
    return lines


def size_table(discoveries: list[Discovery]) -> list[str]:
    """Return a table of faithfulness by size, means over seeds."""
    sizes = discoveries[0].settings.sizes
    heading = "| faithfulness at size | " + " | ".join(f"{size:g}" for size in sizes) + " |"
    lines = [heading, "|---" + "|---:" * len(sizes) + "|"]
    for measure in (CMD, CPR):
        for name in NAMES[:2]:
            curves = [outcomes_by_name(discovery, measure)[name].curve.faithfulness for discovery in discoveries]
            lines.append(f"| {measure.name}, {name} | " + " | ".join(f"{x:.2f}" for x in np.mean(curves, 0)) + " |")
    return lines


def outcomes_by_name(discovery: Discovery, measure: Measure) -> dict[str, Outcome]:
    """Return the outcomes of a measure by the name of their recipe."""
    return {outcome.name: outcome for outcome in discovery.of(measure)}


def worse_sizes(greedy: Outcome, learned: Outcome) -> str:
    """Return the sizes at which the learned ranking's circuits are significantly worse than greedy's."""
    heights = (resample_heights(outcome.curve, outcome.measure) for outcome in (learned, greedy))
    pairs = zip(greedy.curve.shares, *heights, strict=True)
    return ", ".join(f"{size:.2g}" for size, ours, theirs in pairs if ours.minus(theirs).is_worse)


if __name__ == "__main__":
    main()
