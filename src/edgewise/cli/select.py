"""edgewise select: the second stage."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import options
from .console import out, print_json, print_tables, say
from .show import show_circuit

if TYPE_CHECKING:
    from ..select import Selection

NAME = "select"
# The files of a folder of circuits.
FILES = r"circuit-\d+\.json"


def command(
    scores: Annotated[
        Path, typer.Argument(help="A folder made by `edgewise score` or `edgewise run`, or an EAP-IG json or pt.")
    ],
    edges: Annotated[
        str,
        typer.Option(help="How many edges: a count such as 324, a share such as 0.01, or several, as 0.01,0.05,0.1."),
    ],
    solver: options.Solver = "ilp",
    rank: options.Rank = "absolute",
    pnr: Annotated[float | None, typer.Option(help="The least share of positive edges, from 0 to 1.")] = None,
    bootstrap: Annotated[
        int | None, typer.Option(help="Filter edges by a bootstrap of this many resamples (tau).")
    ] = None,
    interval: options.Interval = "paper",
    confidence: options.Confidence = 0.95,
    threshold: options.Threshold = 0.0,
    kappa: options.Kappa = None,
    fill: options.Fill = False,
    nested: options.Nested = False,
    time_limit: options.TimeLimit = None,
    seed: options.Seed = 0,
    out_path: Annotated[
        Path | None,
        typer.Option(
            "--out", help="The .json, .pt (EAP-IG's) or .npz (small) to write; for several sizes, a folder of them."
        ),
    ] = None,
    overwrite: options.Overwrite = False,
    json: options.Json = False,
) -> None:
    """Select a circuit of a given number of edges from scores, or one for each of several sizes.

    The files it writes can be read by EAP-IG and MIB, too.
    """
    from ..core.ranking import Ranking
    from ..core.scores import EdgeScores
    from ..core.statistics import NO_FILTER, Bootstrap, Shrinkage, summarise
    from ..errors import InputError
    from ..io.atomic import atomic_folder
    from ..method import choose
    from ..runtime.store import open_partial_store
    from ..select import SOLVERS, SelectionProblem, parse_edges, solve, solve_path

    how = choose("solver", SOLVERS, solver, time_limit=time_limit)
    # Made even if it isn't used, so that its words are checked.
    tau = Bootstrap.resamples if bootstrap is None else bootstrap
    resampling = Bootstrap(tau, interval.lower(), confidence, threshold, seed)
    if bootstrap and kappa is not None:
        raise InputError("--bootstrap and --kappa are two filters; give one of them")
    way = resampling if bootstrap else NO_FILTER if kappa is None else Shrinkage(kappa)
    several = "," in edges
    if out_path is not None:
        _check(out_path, several, overwrite, scores)
    if nested and not several:
        raise InputError("--nested needs several sizes: --edges 0.01,0.02,0.05")
    if Ranking.is_folder(scores):
        if way != NO_FILTER:
            raise InputError(f"{scores} is a ranking, which has no examples to resample; leave the filter out")
        ranking, origin = Ranking.load(scores), {}
    else:
        given = EdgeScores.load(scores)
        statistics = summarise(given, way)
        ranking, origin = statistics.ranking, dict(given.provenance)
    budgets = [parse_edges(part.strip(), ranking.graph.n_edges) for part in edges.split(",")]
    if len(set(budgets)) < len(budgets):
        raise InputError(f"--edges {edges} asks for a size twice; give each once")
    problem = SelectionProblem.of(ranking, rank.lower(), budgets[0], pnr)
    selections = solve_path(problem, budgets, how, fill, nested) if several else (solve(problem, how, fill),)
    about = {"rank": rank.lower(), "pnr": pnr, "bootstrap": bootstrap, "kappa": kappa}
    if bootstrap:
        about["edges_kept_by_bootstrap"] = int(statistics.kept.sum())
        about["sign_instability"] = statistics.sign_instability
    records = [selection.record() | about for selection in selections]
    if out_path is not None:
        with open_partial_store(out_path):
            _check(out_path, several, overwrite, scores)  # somebody may have written there meanwhile
            with atomic_folder(out_path, overwrite, FILES) if several else nullcontext(out_path) as draft:
                for selection, record in zip(selections, records, strict=True):
                    place = Path(f"circuit-{selection.asked}.json" if several else "")
                    selection.circuit.save(draft / place, ranking.value, origin | record)
                    record["out"] = str(out_path / place)
    if json:
        print_json({"circuits": records} if several else records[0])
    else:
        _show(selections, records, pnr)
        name = f"the circuit of {selections[-1].asked:,} edges" if several else "the circuit"
        show_circuit(name, selections[-1].circuit, ranking.value, ranking.signed)


def _check(path: Path, several: bool, overwrite: bool, scores: Path) -> None:
    """Refuse a place that circuits can't be written to."""
    from ..io.atomic import check_file, check_folder
    from ..io.formats import check_suffix

    if several:
        check_folder(path, overwrite, FILES)
    else:
        check_suffix(path)
        check_file(path, overwrite, [scores])


def _show(selections: Sequence[Selection], records: list[dict[str, Any]], pnr: float | None) -> None:
    """Print what was selected, and how it ended."""
    from ..report.tables import key_value_table, number_tables
    from ..select import Status

    # Rules prove nothing, so there is no bound to be near to.
    unproven = {"gap", "bound"} if selections[-1].status == Status.HEURISTIC else set()
    if len(records) > 1:
        columns = ["edges_asked", "edges_kept", "objective", "gap", "status", "seconds"]
        columns += ["possible_pnr"] if any(r["possible_pnr"] is not None for r in records) else []
        columns = [column for column in columns if column not in unproven]
        rows = [[_cell(record[column]) for column in columns] for record in records]
        print_tables(number_tables([column.replace("_", " ") for column in columns], rows, out.width))
    else:
        shown = {
            name.replace("_", " "): _cell(value)
            for name, value in records[0].items()
            if value is not None and name not in unproven
        }
        out.print(key_value_table(f"a circuit, edges: {selections[0].kept}", shown))
    say(selections[-1].status.advice)
    if any(selection.possible_pnr is not None for selection in selections):
        say(f"PNR {pnr:g} asks for more positive edges than there can be: possible_pnr says how many there are")


def _cell(value: Any) -> str:
    return "-" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
