"""Compare worker processes with one single-threaded process: wall time of scoring and evaluating.

    python benchmarks/workers.py                                  # SmolLM2, two workers
    python benchmarks/workers.py --engines local,ray --repeats 3
    python benchmarks/workers.py --model demo --examples 200

The work is EAP-IG on IOI and greedy circuits of every size. Seconds are the minimum of several repetitions that
alternate. Workers start and load the model before the clock starts. `values` is the largest difference from one
process, relative to the largest value.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from edgewise import CMD, Circuit, Greedy, SelectionProblem, evaluate_circuits, load_model, load_task, score_edges
from edgewise.evaluate import SIZES
from edgewise.models import Model
from edgewise.runtime import Session, open_engine
from edgewise.runtime.engine import IN_PROCESS, Engine
from edgewise.select import solve_path
from edgewise.tasks import Task

Work = Callable[[Model, Task, list[Circuit], Session], NDArray]


def score(model: Model, task: Task, circuits: list[Circuit], session: Session) -> NDArray:
    """Return the scores [example, edge]."""
    return score_edges(model, task, session=session).values


def evaluate(model: Model, task: Task, circuits: list[Circuit], session: Session) -> NDArray:
    """Return the metric [circuit, example]."""
    return evaluate_circuits(model, task, circuits, session=session).values


WORK: dict[str, Work] = {"score": score, "evaluate": evaluate}


def measure(args: argparse.Namespace, engines: dict[str, Engine]) -> dict[str, dict[str, tuple[float, NDArray]]]:
    """Return stage -> engine -> (minimum seconds, values)."""
    model = load_model(args.model)
    task = load_task("ioi", model, "train", args.examples, 0)
    problem = SelectionProblem.build(model.graph, score_edges(model, task).mean(), CMD.rank, 0)
    sizes = [int(share * model.graph.n_edges) for share in SIZES if share < 1]
    circuits = [selection.circuit for selection in solve_path(problem, sizes, Greedy())]
    for engine in engines.values():  # start the workers, which load the model
        evaluate_circuits(model, task, circuits[:1], session=Session(engine=engine))
    measured: dict[str, dict[str, tuple[float, NDArray]]] = {stage: {} for stage in WORK}
    for _ in range(args.repeats):
        for stage, work in WORK.items():
            for name, engine in engines.items():
                start = time.perf_counter()
                values = work(model, task, circuits, Session(engine=engine))
                seconds = time.perf_counter() - start
                measured[stage][name] = (min(seconds, measured[stage].get(name, (np.inf,))[0]), values)
    return measured


def main() -> None:
    """Parse the options, measure, print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--examples", type=int, default=24)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--engines", default="local,ray")
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    engines = {"one process": IN_PROCESS}
    for name in args.engines.split(","):
        engines[f"{args.workers} workers, {name}"] = open_engine(name, workers=args.workers)
    measured = measure(args, engines)
    measured["both"] = {
        name: (sum(measured[stage][name][0] for stage in WORK), measured["score"][name][1]) for name in engines
    }
    table = Table(title=f"{args.model}, {args.examples} examples of IOI", title_justify="left")
    for column in ("", "", "seconds", "speed-up", "values"):
        table.add_column(column, justify="right" if column else "left")
    for stage, by_engine in measured.items():
        alone, expected = by_engine["one process"]
        for name, (seconds, values) in by_engine.items():
            difference = np.abs(values - expected).max() / np.abs(expected).max()
            table.add_row(stage, name, f"{seconds:.2f}", f"{alone / seconds:.2f}", f"{difference:.1e}")
    Console(width=100).print(table)
    for engine in engines.values():
        engine.close()


if __name__ == "__main__":
    main()
