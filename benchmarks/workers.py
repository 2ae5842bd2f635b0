"""Several worker processes against one single-threaded process: wall time of scoring and evaluating, in one run.

    python benchmarks/workers.py                                  # SmolLM2, two workers
    python benchmarks/workers.py --engines local,ray --repeats 3
    python benchmarks/workers.py --model demo --examples 200

Scores and circuits are real: EAP-IG on IOI, and greedy circuits of every size. Repetitions take turns, and the least
counts; workers are begun, and have the model, before the clock starts. `values` is the largest difference from one
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

from edgewise import (
    CMD,
    SIZES,
    Circuit,
    Greedy,
    SelectionProblem,
    evaluate_circuits,
    load_model,
    load_task,
    score_edges,
    solve_path,
)
from edgewise.models import Model
from edgewise.runtime import Session, open_engine
from edgewise.runtime.engine import IN_PROCESS, Engine
from edgewise.tasks import Task

Work = Callable[[Model, Task, list[Circuit], Session], NDArray]


def score(model: Model, task: Task, circuits: list[Circuit], session: Session) -> NDArray:
    """[example, edge]."""
    return score_edges(model, task, session=session).values


def evaluate(model: Model, task: Task, circuits: list[Circuit], session: Session) -> NDArray:
    """[circuit, example]."""
    return evaluate_circuits(model, task, circuits, session=session).values


WORK: dict[str, Work] = {"score": score, "evaluate": evaluate}


def measure(given: argparse.Namespace, engines: dict[str, Engine]) -> dict[str, dict[str, tuple[float, NDArray]]]:
    """Stage -> engine -> the least seconds, and what it found."""
    model = load_model(given.model)
    task = load_task("ioi", model, "train", given.examples, 0)
    problem = SelectionProblem.build(model.graph, score_edges(model, task).mean(), CMD.rank, 0)
    sizes = [int(share * model.graph.n_edges) for share in SIZES if share < 1]
    circuits = [selection.circuit for selection in solve_path(problem, sizes, Greedy())]
    for engine in engines.values():  # workers begin, and load the model
        evaluate_circuits(model, task, circuits[:1], session=Session(engine=engine))
    found: dict[str, dict[str, tuple[float, NDArray]]] = {stage: {} for stage in WORK}
    for _ in range(given.repeats):
        for stage, work in WORK.items():
            for name, engine in engines.items():
                began = time.perf_counter()
                values = work(model, task, circuits, Session(engine=engine))
                seconds = time.perf_counter() - began
                found[stage][name] = (min(seconds, found[stage].get(name, (np.inf,))[0]), values)
    return found


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--examples", type=int, default=24)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--engines", default="local,ray")
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    engines = {"one process": IN_PROCESS}
    for name in given.engines.split(","):
        engines[f"{given.workers} workers, {name}"] = open_engine(name, workers=given.workers)
    found = measure(given, engines)
    found["both"] = {name: (sum(found[stage][name][0] for stage in WORK), found["score"][name][1]) for name in engines}
    table = Table(title=f"{given.model}, {given.examples} examples of IOI", title_justify="left")
    for column in ("", "", "seconds", "times as fast", "values"):
        table.add_column(column, justify="right" if column else "left")
    for stage, by_engine in found.items():
        alone, expected = by_engine["one process"]
        for name, (seconds, values) in by_engine.items():
            apart = np.abs(values - expected).max() / np.abs(expected).max()
            table.add_row(stage, name, f"{seconds:.2f}", f"{alone / seconds:.2f}", f"{apart:.1e}")
    Console(width=100).print(table)
    for engine in engines.values():
        engine.close()


if __name__ == "__main__":
    main()
