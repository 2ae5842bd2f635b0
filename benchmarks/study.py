"""The circuits of a study: what running several at once saves, and what a checkout from before takes, in one run.

    python benchmarks/study.py                                      # the demo's study
    python benchmarks/study.py --model smollm2 --every 20
    python benchmarks/study.py --model smollm2 --every 20 --before CHECKOUT
    python benchmarks/study.py --model smollm2 --every 20 --before CHECKOUT --workers 2   # as commands run by default

Scores are real, and so are the circuits: those of every recipe of the study in docs/results.md at every size, of which
every n-th runs. Seconds are CPU time per circuit on all examples, the least of some repetitions that take turns; with
--workers they are wall time, and the checkout has as many threads. `values` is the largest difference from circuits
that run one by one, relative to the largest value.
"""

from __future__ import annotations

import argparse
import os
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from edgewise.recipes.remember import select
from rich.console import Console
from rich.table import Table

from edgewise import Circuit, Grid, Plan, Task, evaluate_circuits, load_model, load_task, score_edges
from edgewise.models import Model, load_source
from edgewise.recipes.curves import enter
from edgewise.runtime import DEFAULT_SESSION, IN_PROCESS, Session
from edgewise.runtime.store import NO_STORE

Clock = Callable[[], float]
PLANS = {
    "demo": Plan(("demo",), ("ioi",), examples=100),
    "smollm2": Plan(("smollm2",), ("ioi",), examples=24, grid=Grid(kappa=(1.0,), pnr=(0.3, 0.5, 0.7, 0.9))),
}
BATCH = 64
TOGETHER, ONE_BY_ONE, BEFORE, WORKERS = "several at once", "one by one", "before", "with workers"


def study_circuits(model: Model, plan: Plan, task: str) -> list[Circuit]:
    """The distinct circuits that a study's first seed tries on validation, small ones first."""
    scores = score_edges(model, load_task(task, model, "train", plan.examples, 0), plan.settings.scorer)
    rows = select(enter(plan.recipes(0), scores), plan.settings, NO_STORE, lambda *_: None)
    distinct = dict.fromkeys(selection.circuit for row in rows for selection in row)
    return sorted(distinct, key=lambda circuit: circuit.n_edges)


def run(
    model: Model, task: Task, circuits: list[Circuit], how: str, clock: Clock, session: Session = DEFAULT_SESSION
) -> tuple[float, np.ndarray]:
    """Seconds, and the values [circuit, example]."""
    started = clock()
    # One call for each circuit would run the model for each, too: a job that has no room for a second one runs it once.
    room = {"memory": 1} if how == ONE_BY_ONE else {}
    size = None if how == WORKERS else BATCH  # workers are given the pieces of a command
    values = evaluate_circuits(model, task, circuits, batch_size=size, session=session, **room).values
    return clock() - started, values


def run_elsewhere(checkout: str, folder: Path, workers: int | None) -> subprocess.Popen[bytes]:
    """A process that runs the same circuits with another checkout's code whenever it reads a line."""
    words = [sys.executable, __file__, "--serve", str(folder), *(["--workers", str(workers)] if workers else [])]
    there = {**os.environ, "PYTHONPATH": str(Path(checkout) / "src"), "OMP_NUM_THREADS": str(workers or 1)}
    return subprocess.Popen(words, env=there, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def serve(folder: Path, clock: Clock) -> None:
    """What that process does."""
    name, task, masks = pickle.loads((folder / "work.pkl").read_bytes())
    model = load_model(name)
    circuits = [Circuit(model.graph, mask) for mask in masks]
    for _ in sys.stdin:
        seconds, values = run(model, task, circuits, BEFORE, clock)
        np.save(folder / "values.npy", values)
        print(seconds, flush=True)


def clock_of(given: argparse.Namespace) -> Clock:
    """CPU time of one process, or wall time of several."""
    return time.perf_counter if given.workers else time.process_time


def local_workers(model: Model, task: Task, workers: int) -> Any:
    """Workers that have begun."""
    from edgewise import Local

    engine = Local(workers)
    evaluate_circuits(model, task, [], session=Session(engine=engine))
    return engine


def measure(given: argparse.Namespace, folder: Path) -> tuple[dict[str, tuple[float, np.ndarray]], str]:
    """How -> the least CPU seconds, and the values; and what was run, in words."""
    plan = PLANS[given.model]
    model = load_source(plan.source(given.model))
    every = study_circuits(model, plan, given.task)
    circuits = every[:: given.every]
    task = load_task(given.task, model, "validation", given.examples or plan.examples, 0)
    other = None
    if given.before:
        (folder / "work.pkl").write_bytes(pickle.dumps((given.model, task, [one.mask for one in circuits])))
        other = run_elsewhere(given.before, folder, given.workers)
    found: dict[str, tuple[float, np.ndarray]] = {}
    ways = [BEFORE] * bool(other) + [ONE_BY_ONE, TOGETHER] + [WORKERS] * bool(given.workers)
    engine = local_workers(model, task, given.workers) if given.workers else IN_PROCESS
    for _ in range(given.repeats):
        for how in ways:
            if how == BEFORE:
                assert other is not None and other.stdin is not None and other.stdout is not None
                other.stdin.write(b"again\n")
                other.stdin.flush()
                seconds, values = float(other.stdout.readline()), np.load(folder / "values.npy")
            else:
                seconds, values = run(
                    model,
                    task,
                    circuits,
                    how,
                    clock_of(given),
                    Session(engine=engine if how == WORKERS else IN_PROCESS),
                )
            found[how] = (min(seconds, found.get(how, (np.inf,))[0]), values)
    engine.close()  # its processes have the other one's pipe open, too
    if other:
        other.communicate()
    about = f"{given.model} on {given.task}: {len(circuits)} of {len(every)} circuits, {len(task)} examples"
    return found, about


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="demo", choices=PLANS)
    parser.add_argument("--task", default="ioi")
    parser.add_argument("--every", type=int, default=1, help="run every n-th circuit, in the order of their sizes")
    parser.add_argument("--examples", type=int, help="of validation; those of the study if not given")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--workers", type=int, help="wall time, also with so many workers")
    parser.add_argument("--before", help="a checkout of edgewise to compare with")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        serve(given.serve, clock_of(given))
        return
    with tempfile.TemporaryDirectory() as folder:
        found, about = measure(given, Path(folder))
    slowest, expected = next(iter(found.values()))[0], found[ONE_BY_ONE][1]
    table = Table(title=about, title_justify="left")
    for column in ("", f"{'wall' if given.workers else 'CPU'} s / circuit", "times as fast", "values"):
        table.add_column(column, justify="left" if not column else "right")
    for how, (seconds, values) in found.items():
        apart = np.abs(values - expected).max() / np.abs(expected).max()
        table.add_row(how, f"{seconds / len(values):.4f}", f"{slowest / seconds:.2f}", f"{apart:.1e}")
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
