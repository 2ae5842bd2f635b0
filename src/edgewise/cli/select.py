"""edgewise select: the second stage."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from . import options
from .console import out, print_json, say

NAME = "select"


def command(
    scores: Annotated[
        Path, typer.Argument(help="A folder made by `edgewise score` or `edgewise run`, or an EAP-IG json.")
    ],
    edges: Annotated[str, typer.Option(help="How many edges: a count such as 324, or a share such as 0.01.")],
    solver: Annotated[str, typer.Option(help="ilp (optimal, proven), greedy or top-n.")] = "ilp",
    rank: Annotated[str, typer.Option(help="signed (for CPR) or absolute (for CMD).")] = "absolute",
    pnr: Annotated[float | None, typer.Option(help="The least share of positive edges, from 0 to 1.")] = None,
    bootstrap: Annotated[
        int | None, typer.Option(help="Filter edges by a bootstrap of this many resamples (tau).")
    ] = None,
    interval: options.Interval = "paper",
    confidence: options.Confidence = 0.95,
    threshold: options.Threshold = 0.0,
    time_limit: options.TimeLimit = None,
    seed: options.Seed = 0,
    out_file: Annotated[Path | None, typer.Option("--out", help="The circuit file to write, as EAP-IG json.")] = None,
    json: options.Json = False,
) -> None:
    """Select a circuit of a given number of edges from scores.

    The file it writes can be read by EAP-IG and MIB, too.
    """
    from ..formats.eap_json import write_circuit
    from ..formats.score_folder import read_scores
    from ..report.tables import key_value_table
    from ..select import SelectionProblem, parse_edges, solve
    from ..statistics import Bootstrap, summarise

    given = read_scores(scores)
    resampling = None if not bootstrap else Bootstrap(bootstrap, interval, confidence, threshold, seed)
    statistics = summarise(given, resampling)
    budget = parse_edges(edges, given.graph.n_edges)
    problem = SelectionProblem.build(given.graph, statistics.score, rank, budget, pnr)
    selection = solve(problem, solver, time_limit)
    record = selection.record() | {"rank": rank, "pnr": pnr, "bootstrap": bootstrap}
    if bootstrap:
        record |= {
            "edges_kept_by_bootstrap": int(statistics.kept.sum()),
            "sign_instability": statistics.sign_instability,
        }
    if out_file is not None:
        write_circuit(out_file, selection.circuit, statistics.score, dict(given.provenance) | record)
        record["out"] = str(out_file)
    if json:
        print_json(record)
        return
    out.print(key_value_table(f"a circuit of {selection.kept} edges", record))
    say(selection.status.advice)
