"""Selection: edgewise beside PuLP + CBC (the paper's solver) and HiGHS on the full model, in one run.

    python benchmarks/selection.py                        # synthetic scores of four models' shapes
    python benchmarks/selection.py --scores SCORES.json   # and the scores of an EAP-IG file, against CBC and HiGHS too

Seconds and memory are per size, each solver in a process of its own. The limit for the other solvers is a minute a
size: past it, the larger ones aren't tried. Needs `pip install 'edgewise[bench]'`.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from edgewise import SIZES, EdgeScores, Graph, SelectionProblem, solve
from edgewise.select.highs import optimise
from edgewise.select.reduced import reduce

SHAPES = {
    "GPT-2 small": (12, 12, 768),
    "Gemma-2 2B": (26, 8, 2304),
    "Qwen-2.5 0.5B": (24, 14, 896),
    "Llama-3.1 8B": (32, 32, 4096),
}
LIMIT = 60.0
SHARES = SIZES[:-1]


def load(source: str, seed: int) -> tuple[Graph, np.ndarray]:
    """A graph and its scores: of a file, or heavy-tailed random ones of a model's shape."""
    if source in SHAPES:
        graph = Graph(*SHAPES[source])
        return graph, np.random.default_rng(seed).standard_t(1.5, graph.n_edges)
    scores = EdgeScores.load(source)
    return scores.graph, scores.mean()


def solve_cbc(problem: SelectionProblem) -> float:
    """The paper's formulation in PuLP, solved by CBC as it comes."""
    import pulp

    graph, value = problem.graph, problem.value
    model = pulp.LpProblem("circuit", pulp.LpMaximize)
    x = [pulp.LpVariable(f"x{edge}", cat="Binary") for edge in range(graph.n_edges)]
    y = [pulp.LpVariable(f"y{node}", cat="Binary") for node in range(graph.n_nodes)]
    out: list[list] = [[] for _ in y]
    into: list[list] = [[] for _ in y]
    model += pulp.lpSum(value[edge] * x[edge] for edge in range(graph.n_edges))
    model += pulp.lpSum(x) <= problem.budget
    model += y[0] == 1
    model += y[-1] == 1
    for edge, (u, v) in enumerate(zip(graph.edge_source.tolist(), graph.edge_head.tolist(), strict=True)):
        model += x[edge] <= y[u]
        model += x[edge] <= y[v]
        out[u].append(x[edge])
        into[v].append(x[edge])
    for node in range(graph.n_nodes):
        if out[node]:
            model += pulp.lpSum(out[node]) >= y[node]
        if into[node]:
            model += pulp.lpSum(into[node]) >= y[node]
    model.solve(pulp.PULP_CBC_CMD(msg=False, timeLimit=LIMIT))
    return float(pulp.value(model.objective))


def solve_full(problem: SelectionProblem) -> float:
    """All edges as columns, left to HiGHS."""
    nothing = np.zeros(problem.graph.n_edges, bool)
    scale = float(np.abs(problem.value[problem.order[problem.budget - 1]]))
    everything = reduce(problem, nothing, ~nothing, scale)
    answer = optimise(everything.strict, integer=True, seconds=LIMIT)
    return float("nan") if answer.x is None else problem.objective(everything.mask(answer))


def measure(solver: str, source: str, rank: str, seed: int) -> list[dict]:
    """Seconds and objective of every size, in this process."""
    graph, score = load(source, seed)
    _ = graph.edge_head, graph.edge_names
    started = time.perf_counter()
    base = SelectionProblem.build(graph, score, rank, 0)
    np.argsort(base.value)
    sorting = time.perf_counter() - started
    _ = base.order, base.connectors
    rows = []
    for share in SHARES:
        problem = base.with_budget(int(share * graph.n_edges))
        started = time.perf_counter()
        if solver == "edgewise":
            selection = solve(problem)
            objective, status = selection.objective, selection.status.value
        else:
            objective, status = {"cbc": solve_cbc, "highs": solve_full}[solver](problem), "-"
        seconds = time.perf_counter() - started
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        row = {"share": share, "edges": problem.budget, "seconds": seconds, "objective": objective, "status": status}
        rows.append(row | {"argsort": sorting, "peak_mb": peak / 1024})
        if seconds > LIMIT and solver != "edgewise":
            break
    return rows


def in_a_process(*words: str) -> list[dict]:
    """`measure` in a fresh interpreter."""
    done = subprocess.run([sys.executable, __file__, "--measure", *words], capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def compare(console: Console, source: str, title: str, rivals: tuple[str, ...], seed: int) -> None:
    """One table: every size of one set of scores, both rankings."""
    for rank in ("absolute", "signed"):
        ours = in_a_process("edgewise", source, rank, str(seed))
        others = {rival: in_a_process(rival, source, rank, str(seed)) for rival in rivals}
        table = Table(
            title=f"{title}, {rank}; one argsort of the scores: {ours[0]['argsort']:.3f} s", title_justify="left"
        )
        for name in ("share", "edges", "status", "seconds", "argsorts", "peak MB", *(f"{r} s" for r in rivals),
                     *(f"{r} / ours" for r in rivals), *(f"{r} falls short by" for r in rivals)):  # fmt: skip
            table.add_column(name, justify="right")
        for index, row in enumerate(ours):
            theirs = [others[rival][index] if index < len(others[rival]) else None for rival in rivals]
            table.add_row(
                f"{row['share']:g}", f"{row['edges']:,}", row["status"], f"{row['seconds']:.3f}",
                f"{row['seconds'] / row['argsort']:.1f}", f"{row['peak_mb']:.0f}",
                *(f"{t['seconds']:.1f}" if t else "> 60" for t in theirs),
                *(f"{t['seconds'] / row['seconds']:.0f}" if t else "-" for t in theirs),
                *(f"{row['objective'] - t['objective']:.1e}" if t else "-" for t in theirs),
            )  # fmt: skip
        console.print(table)
        total = sum(row["seconds"] for row in ours)
        millions = load(source, seed)[0].n_edges / 1e6
        console.print(f"all sizes: {total:.2f} s, {total / millions:.2f} s per million edges")
        for rival in rivals:
            if len(others[rival]) == len(ours):
                ratio = sum(row["seconds"] for row in others[rival]) / total
                console.print(f"all sizes, {rival} / ours: {ratio:.0f}")


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scores", help="an EAP-IG file to compare all solvers on")
    parser.add_argument("--rivals", default="cbc,highs", help="which other solvers, with commas: cbc, highs; or none")
    parser.add_argument("--shapes", default=",".join(SHAPES), help="which synthetic scores")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--measure", nargs=4, metavar=("SOLVER", "SOURCE", "RANK", "SEED"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        solver, source, rank, seed = given.measure
        print(json.dumps(measure(solver, source, rank, int(seed))))
        return
    console = Console(width=160)
    rivals = tuple(name for name in given.rivals.split(",") if name not in ("", "none"))
    if given.scores:
        compare(console, given.scores, Path(given.scores).name, rivals, given.seed)
    for shape in filter(None, given.shapes.split(",")):
        compare(console, shape, f"{shape} (synthetic)", (), given.seed)


if __name__ == "__main__":
    main()
