"""Measure the circuits of a study: one by one, several at once, and with an earlier checkout of edgewise.

    python benchmarks/study.py                                      # the study of the demo model
    python benchmarks/study.py --model smollm2 --every 20
    python benchmarks/study.py --model smollm2 --every 20 --before CHECKOUT
    python benchmarks/study.py --model smollm2 --every 20 --before CHECKOUT --workers 2   # the default of commands

The circuits are those of every recipe of the study in docs/results/paper-methods.md at every size; every n-th one runs.
Seconds are CPU time per circuit on all examples, the minimum of several repetitions that alternate. With --workers they
are wall time, and the checkout uses as many threads. `values` is the largest difference from circuits that run one by
one, relative to the largest value.
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
from rich.console import Console
from rich.table import Table

from edgewise import Circuit, Plan, Task, evaluate_circuits, load_model, load_task, score_edges
from edgewise.models import Model, load_source
from edgewise.recipes.stages import attach_rankings, select_recipes, summarise_filters
from edgewise.runtime import DEFAULT_SESSION, IN_PROCESS, Session
from edgewise.study import Grid

Clock = Callable[[], float]
PLANS = {
    "demo": Plan(("demo",), ("ioi",), examples=100),
    "smollm2": Plan(("smollm2",), ("ioi",), examples=24, grid=Grid(kappa=(1.0,), pnr=(0.3, 0.5, 0.7, 0.9))),
}
BATCH = 64
TOGETHER, ONE_BY_ONE, BEFORE, WORKERS = "several at once", "one by one", "before", "with workers"


def study_circuits(model: Model, plan: Plan, task: str) -> list[Circuit]:
    """Return the distinct circuits of the first seed of a study, small ones first."""
    scores = score_edges(model, load_task(task, model, "train", plan.examples, 0), plan.settings.scorer)
    pairs = plan.recipes(0)
    by_filter = summarise_filters([recipe.filter for _, recipe in pairs], scores)
    rows = select_recipes(attach_rankings(pairs, by_filter), plan.settings, DEFAULT_SESSION)
    distinct = dict.fromkeys(selection.circuit for row in rows for selection in row)
    return sorted(distinct, key=lambda circuit: circuit.n_edges)


def run(
    model: Model, task: Task, circuits: list[Circuit], how: str, clock: Clock, session: Session = DEFAULT_SESSION
) -> tuple[float, np.ndarray]:
    """Evaluate circuits; return the seconds and the values [circuit, example]."""
    started = clock()
    # One call per circuit would also run the model once per circuit. A memory limit of 1 byte avoids that.
    room = {"memory": 1} if how == ONE_BY_ONE else {}
    size = None if how == WORKERS else BATCH  # workers get the same pieces as in a command
    values = evaluate_circuits(model, task, circuits, batch_size=size, session=session, **room).values
    return clock() - started, values


def run_elsewhere(checkout: str, folder: Path, workers: int | None) -> subprocess.Popen[bytes]:
    """Start a process that runs the same circuits with the code of another checkout, once per line that it reads."""
    script = Path(checkout) / "benchmarks" / "study.py"
    command = [sys.executable, str(script), "--serve", str(folder), *(["--workers", str(workers)] if workers else [])]
    environment = {**os.environ, "PYTHONPATH": str(Path(checkout) / "src"), "OMP_NUM_THREADS": str(workers or 1)}
    return subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def serve(folder: Path, clock: Clock) -> None:
    """Evaluate the circuits of `folder` once per line of standard input; print the seconds."""
    name, task, masks = pickle.loads((folder / "work.pkl").read_bytes())
    model = load_model(name)
    circuits = [Circuit(model.graph, mask) for mask in masks]
    for _ in sys.stdin:
        seconds, values = run(model, task, circuits, BEFORE, clock)
        np.save(folder / "values.npy", values)
        print(seconds, flush=True)


def choose_clock(args: argparse.Namespace) -> Clock:
    """Return the clock: CPU time of one process, or wall time with workers."""
    return time.perf_counter if args.workers else time.process_time


def start_workers(model: Model, task: Task, workers: int) -> Any:
    """Start local workers and wait until they are ready."""
    from edgewise import Local

    engine = Local(workers)
    evaluate_circuits(model, task, [], session=Session(engine=engine))
    return engine


def measure(args: argparse.Namespace, folder: Path) -> tuple[dict[str, tuple[float, np.ndarray]], str]:
    """Return way -> (minimum seconds, values), and a title for the table."""
    plan = PLANS[args.model]
    model = load_source(plan.source(args.model))
    every = study_circuits(model, plan, args.task)
    circuits = every[:: args.every]
    task = load_task(args.task, model, "validation", args.examples or plan.examples, 0)
    other = None
    if args.before:
        (folder / "work.pkl").write_bytes(pickle.dumps((args.model, task, [circuit.mask for circuit in circuits])))
        other = run_elsewhere(args.before, folder, args.workers)
    measured: dict[str, tuple[float, np.ndarray]] = {}
    ways = [BEFORE] * bool(other) + [ONE_BY_ONE, TOGETHER] + [WORKERS] * bool(args.workers)
    engine = start_workers(model, task, args.workers) if args.workers else IN_PROCESS
    for _ in range(args.repeats):
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
                    choose_clock(args),
                    Session(engine=engine if how == WORKERS else IN_PROCESS),
                )
            measured[how] = (min(seconds, measured.get(how, (np.inf,))[0]), values)
    engine.close()  # its processes also hold the pipe of the other process open
    if other:
        other.communicate()
    title = f"{args.model} on {args.task}: {len(circuits)} of {len(every)} circuits, {len(task)} examples"
    return measured, title


def main() -> None:
    """Parse the options, measure, print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="demo", choices=PLANS)
    parser.add_argument("--task", default="ioi")
    parser.add_argument("--every", type=int, default=1, help="run every n-th circuit, sorted by size")
    parser.add_argument("--examples", type=int, help="number of validation examples; default: as in the study")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--workers", type=int, help="also measure this number of workers; report wall time")
    parser.add_argument("--before", help="a checkout of edgewise to compare with")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        serve(args.serve, choose_clock(args))
        return
    with tempfile.TemporaryDirectory() as folder:
        measured, title = measure(args, Path(folder))
    slowest, expected = next(iter(measured.values()))[0], measured[ONE_BY_ONE][1]
    table = Table(title=title, title_justify="left")
    for column in ("", f"{'wall' if args.workers else 'CPU'} s / circuit", "speed-up", "values"):
        table.add_column(column, justify="left" if not column else "right")
    for how, (seconds, values) in measured.items():
        difference = np.abs(values - expected).max() / np.abs(expected).max()
        table.add_row(how, f"{seconds / len(values):.4f}", f"{slowest / seconds:.2f}", f"{difference:.1e}")
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
