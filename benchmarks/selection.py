"""Compare selection in edgewise with PuLP + CBC (the paper's solver) and with HiGHS on the full problem.

    python benchmarks/selection.py                        # random scores for the shapes of five models
    python benchmarks/selection.py --scores SCORES.json   # also an EAP-IG file, with CBC and HiGHS
    python benchmarks/selection.py --spans 5 --shapes 'Llama-3.1 8B'   # (edge, span) pairs instead of edges
    python benchmarks/selection.py --shapes 'SmolLM2 135M normal,SmolLM2 135M rounded,SmolLM2 135M by source'   # hard

Seconds and memory are per size. Each solver runs in its own process. The other solvers stop after the first size that
takes more than a minute. Needs `pip install 'edgewise[bench]'`.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

import highspy
import numpy as np
from rich.console import Console
from rich.table import Table

from edgewise import EdgeScores, Graph, SelectionProblem, solve
from edgewise.evaluate import SIZES
from edgewise.graph import BaseGraph, SpanGraph
from edgewise.select.programs import open_solver, read_answer
from edgewise.select.reduced import reduce_problem

SHAPES = {
    "GPT-2 small": (12, 12, 768),
    "Gemma-2 2B": (26, 8, 2304),
    "Qwen-2.5 0.5B": (24, 14, 896),
    "Llama-3.1 8B": (32, 32, 4096),
}
# Random scores whose relaxation is weak: light tails, many equal values. `standard_t` has heavy tails, as scores have.
HARD = {
    "normal": lambda rng, graph: rng.normal(size=graph.n_edges),
    "rounded": lambda rng, graph: np.round(rng.normal(size=graph.n_edges)),
    "by source": lambda rng, graph: np.exp(rng.normal(size=graph.n_nodes))[graph.edge_source],
}
SHAPES |= {f"SmolLM2 135M {kind}": (30, 9, 576) for kind in HARD}
LIMIT = 60.0
SHARES = SIZES[:-1]


def load(source: str, seed: int, n_spans: int) -> tuple[BaseGraph, np.ndarray]:
    """Return a graph and its scores: from a file, or heavy-tailed random scores for the shape of a model."""
    if source in SHAPES:
        plain = Graph(*SHAPES[source])
        graph = SpanGraph(plain, tuple(map(str, range(n_spans)))) if n_spans else plain
        rng = np.random.default_rng(seed)
        hard = [make(rng, graph) for kind, make in HARD.items() if source.endswith(kind)]
        return graph, hard[0] if hard else rng.standard_t(1.5, graph.n_edges)
    scores = EdgeScores.load(source)
    return scores.graph, scores.mean()


def solve_cbc(problem: SelectionProblem) -> float:
    """Solve the paper's formulation with PuLP and CBC; return the objective."""
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
    for edge, (u, v) in enumerate(zip(graph.edge_source.tolist(), graph.edge_target.tolist(), strict=True)):
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
    """Solve the full problem, one column per edge, with HiGHS; return the objective."""
    nothing = np.zeros(problem.graph.n_edges, bool)
    scale = float(np.abs(problem.value[problem.order[problem.budget - 1]]))
    everything = reduce_problem(problem, nothing, ~nothing, scale)
    solver = open_solver(everything.strict)
    n_columns = len(everything.program.cost)
    integer = np.full(n_columns, int(highspy.HighsVarType.kInteger), np.uint8)
    solver.changeColsIntegrality(n_columns, np.arange(n_columns, dtype=np.int32), integer)
    for option, value in (("mip_rel_gap", 0.0), ("mip_abs_gap", 1e-9), ("time_limit", float(LIMIT))):
        solver.setOptionValue(option, value)
    answer = read_answer(solver)
    return float("nan") if answer.x is None else problem.objective(everything.mask(answer))


def measure(solver: str, source: str, rank: str, seed: int, n_spans: int) -> list[dict]:
    """Measure seconds and objective of every size, in this process."""
    graph, score = load(source, seed, n_spans)
    _ = graph.edge_source, graph.edge_target
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


def measure_in_process(*options: str) -> list[dict]:
    """Run `measure` in a new Python process."""
    finished = subprocess.run(
        [sys.executable, __file__, "--measure", *options], capture_output=True, text=True, check=True
    )
    return json.loads(finished.stdout.splitlines()[-1])


def compare(console: Console, source: str, title: str, rivals: tuple[str, ...], seed: int, n_spans: int) -> None:
    """Print one table per rank: every size of one set of scores."""
    for rank in ("absolute", "signed"):
        edgewise_rows = measure_in_process("edgewise", source, rank, str(seed), str(n_spans))
        others = {rival: measure_in_process(rival, source, rank, str(seed), str(n_spans)) for rival in rivals}
        table = Table(
            title=f"{title}, {rank}; one argsort of the scores: {edgewise_rows[0]['argsort']:.3f} s",
            title_justify="left",
        )
        for name in ("share", "edges", "status", "seconds", "argsorts", "peak MB", *(f"{r} s" for r in rivals),
                     *(f"{r} / edgewise" for r in rivals), *(f"objective minus {r}'s" for r in rivals)):  # fmt: skip
            table.add_column(name, justify="right")
        for index, row in enumerate(edgewise_rows):
            theirs = [others[rival][index] if index < len(others[rival]) else None for rival in rivals]
            table.add_row(
                f"{row['share']:g}", f"{row['edges']:,}", row["status"], f"{row['seconds']:.3f}",
                f"{row['seconds'] / row['argsort']:.1f}", f"{row['peak_mb']:.0f}",
                *(f"{t['seconds']:.1f}" if t else "> 60" for t in theirs),
                *(f"{t['seconds'] / row['seconds']:.0f}" if t else "-" for t in theirs),
                *(f"{row['objective'] - t['objective']:.1e}" if t else "-" for t in theirs),
            )  # fmt: skip
        console.print(table)
        total = sum(row["seconds"] for row in edgewise_rows)
        millions = load(source, seed, n_spans)[0].n_edges / 1e6
        console.print(f"all sizes: {total:.2f} s, {total / millions:.2f} s per million edges")
        for rival in rivals:
            if len(others[rival]) == len(edgewise_rows):
                ratio = sum(row["seconds"] for row in others[rival]) / total
                console.print(f"all sizes, {rival} / edgewise: {ratio:.0f}")


def main() -> None:
    """Parse the options, measure, print tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scores", help="an EAP-IG file to compare all solvers on")
    parser.add_argument("--rivals", default="cbc,highs", help="other solvers, separated by commas: cbc, highs; or none")
    parser.add_argument("--shapes", default=",".join(SHAPES), help="shapes for random scores, separated by commas")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--spans", type=int, default=0, help="spans of tokens: select (edge, span) pairs; 0: edges")
    parser.add_argument(
        "--measure", nargs=5, metavar=("SOLVER", "SOURCE", "RANK", "SEED", "SPANS"), help=argparse.SUPPRESS
    )
    args = parser.parse_args()
    if args.measure:
        solver, source, rank, seed, n_spans = args.measure
        print(json.dumps(measure(solver, source, rank, int(seed), int(n_spans))))
        return
    console = Console(width=160)
    rivals = tuple(name for name in args.rivals.split(",") if name not in ("", "none"))
    if args.scores:
        compare(console, args.scores, Path(args.scores).name, rivals, args.seed, 0)
    for shape in filter(None, args.shapes.split(",")):
        compare(
            console,
            shape,
            f"{shape} (random scores{f', {args.spans} spans' * bool(args.spans)})",
            (),
            args.seed,
            args.spans,
        )


if __name__ == "__main__":
    main()
