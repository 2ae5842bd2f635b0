"""Compare circuits of (edge, span) pairs with circuits of edges at equal numbers of pairs.

    python benchmarks/positions.py --model smollm2 --examples 32 --out docs/results/positions-smollm2-ioi

A circuit of edges acts at all spans, so one of n edges has n times as many pairs as there are spans. Both kinds are
selected by the exact solver, from the same scores of train, before and after the sum over spans, and evaluated on
test. Writes OUT.json with every number and OUT.png.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from edgewise import (
    Circuit,
    EdgeScores,
    SelectionProblem,
    evaluate_circuits,
    load_model,
    load_task,
    score_edges,
    summarise,
)
from edgewise.evaluate import SIZES
from edgewise.evaluate.intervals import faithfulness_intervals
from edgewise.graph import SpanGraph
from edgewise.select import solve_path

SHARES = SIZES[:-1]
COLOURS = {"pairs": "#1f6fb4", "edges": "#c8553d"}


def select(scores: EdgeScores, rank: str) -> list[Circuit]:
    """Return the exact circuits of all sizes."""
    problem = SelectionProblem.of(summarise(scores).ranking, rank, 0)
    return [s.circuit for s in solve_path(problem, [int(share * scores.graph.n_edges) for share in SHARES])]


def measure(model_name: str, task_name: str, n_examples: int, rank: str) -> dict:
    """Return the faithfulness of both kinds of circuits at every size, with intervals over examples."""
    model = load_model(model_name)
    train, test = (load_task(task_name, model, split, n_examples) for split in ("train", "test"))
    started = time.perf_counter()
    pairs = score_edges(model, train, positions=True)
    graph = pairs.graph
    assert isinstance(graph, SpanGraph)
    seconds = time.perf_counter() - started
    by_edge = pairs.values.reshape(len(train), -1, graph.n_spans).sum(2)
    circuits = {"pairs": select(pairs, rank), "edges": select(EdgeScores(model.graph, by_edge), rank)}
    result = evaluate_circuits(model, test, circuits["pairs"] + circuits["edges"])
    intervals = faithfulness_intervals(result.values, result.full, result.empty)
    spread = pairs.graph.plain_score(np.abs(pairs.mean()))
    strongest = np.argsort(-np.abs(pairs.mean()))[:10]
    rows = {}
    for kind, first in (("pairs", 0), ("edges", len(SHARES))):
        chosen = intervals[first : first + len(SHARES)]
        rows[kind] = [
            {
                "share": share, "pairs": circuit.n_edges * (1 if kind == "pairs" else graph.n_spans),
                "edges": circuit.plain().n_edges, "faithfulness": one.estimate, "low": one.low, "high": one.high,
            }
            for share, circuit, one in zip(SHARES, circuits[kind], chosen, strict=True)
        ]  # fmt: skip
    total = np.abs(pairs.mean()).reshape(-1, graph.n_spans).sum(0)
    return {
        "model": model_name, "task": task_name, "examples": n_examples, "rank": rank, "spans": graph.spans,
        "n_edges": model.graph.n_edges, "metric_full": float(result.full.mean()),
        "metric_empty": float(result.empty.mean()), "score_seconds": seconds,
        "share_of_score": dict(zip(graph.spans, (total / total.sum()).tolist(), strict=True)),
        "cancelled": float(1 - np.abs(graph.plain_score(pairs.mean())).sum() / spread.sum()),
        "strongest": [[graph.edge_name(int(pair)), float(pairs.mean()[pair])] for pair in strongest],
        **rows,
    }  # fmt: skip


def draw(record: dict, path: Path) -> None:
    """Draw both curves over the number of pairs."""
    figure = Figure(figsize=(6.4, 3.8), layout="constrained")
    axes = figure.subplots()
    for kind, label in (("pairs", "(edge, span) pairs"), ("edges", "edges at all spans")):
        rows = record[kind]
        x, y = [row["pairs"] for row in rows], [row["faithfulness"] for row in rows]
        axes.fill_between(x, [r["low"] for r in rows], [r["high"] for r in rows], color=COLOURS[kind], alpha=0.15, lw=0)
        axes.plot(x, y, marker="o", markersize=4, color=COLOURS[kind], label=label)
    axes.axhline(1, color="#888888", linewidth=0.8, linestyle=":")
    axes.set_xscale("log")
    axes.set_xlabel("(edge, span) pairs in the circuit")
    axes.set_ylabel("faithfulness")
    axes.set_title(f"{record['model']}, {record['task']}: {record['examples']} test examples, exact circuits", size=10)
    axes.legend(frameon=False, loc="lower right")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=160)


def main() -> None:
    """Parse the options, measure, write a record and a figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--task", default="ioi")
    parser.add_argument("--examples", type=int, default=32)
    parser.add_argument("--rank", default="absolute", choices=("absolute", "signed"))
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    record = measure(args.model, args.task, args.examples, args.rank)
    args.out.with_suffix(".json").write_text(json.dumps(record, indent=1) + "\n")
    draw(record, args.out.with_suffix(".png"))
    for kind in ("pairs", "edges"):
        for row in record[kind]:
            print(kind, *(f"{row[name]:.4g}" for name in ("share", "pairs", "edges", "faithfulness", "low", "high")))


if __name__ == "__main__":
    main()
