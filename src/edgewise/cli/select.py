"""edgewise select: select circuits from scores or from a ranking."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import typer

from ..core.circuit import Circuit
from ..core.ranking import Ranking
from ..core.scores import EdgeScores
from ..core.statistics import NO_FILTER, EdgeStatistics, Filter, Shrinkage, summarise
from ..errors import InputError
from ..evaluate.curve import size_to_edges
from ..graph import BaseGraph, SpanGraph
from ..io.atomic import atomic_folder, check_file, check_folder
from ..io.formats import EAP_SUFFIXES, NPZ, EdgeFile, check_holds, check_level, check_suffix, read_edge_file
from ..io.reading import wrap_read_errors
from ..method import choose
from ..report.tables import key_value_table, number_tables
from ..runtime.store import open_partial_store
from ..select import RANKS, SOLVERS, Selection, SelectionProblem, Status, parse_count, parse_share, solve, solve_path
from . import options
from .console import out, print_json, print_tables, say
from .options import option
from .repeat import KEY, check_same, made_from
from .show import show_circuit, weighted_edges

# The names of the files in a folder of circuits.
CIRCUIT_FILES = r"circuit-\d+\.(json|npz)"


def command(
    *,
    scores: Path = typer.Argument(
        ..., help="A folder of `edgewise score`, `learn` or `run`, or an EAP-IG json or pt file."
    ),
    edges: str | None = option(None, "Selection", "Number of edges, such as 324; several: 100,200,400."),
    size: str | None = option(
        None, "Selection", "Or the share of the edges, such as 0.05 or 5%; several: 1%,5%,10%. 1 is all edges."
    ),
    intervals: options.IntervalOptions,
    limits: options.SolverOptions,
    solver: str = option(
        "ilp", "Selection", "How edges are selected; ilp is proven optimal, or reports its gap.", choices=SOLVERS
    ),
    rank: str = option("absolute", "Selection", f"What to select by: {options.RANK_HELP}.", choices=RANKS),
    pnr: float | None = option(
        None, "Selection", "PNR (positive-negative ratio): the least share of edges with a positive score, from 0 to 1."
    ),
    resamples: int | None = option(None, "Selection", "Filter edges by a bootstrap of this many resamples."),
    kappa: float | None = options.KAPPA,
    seed: int = option(0, "Selection", "Seed of the bootstrap.", min=0),
    level: str | None = options.FILE_LEVEL,
    out_path: Path | None = option(
        None, "Output", "The .json or .pt (EAP-IG's) or .npz file; for several sizes, a folder.", "--out"
    ),
    overwrite: bool = options.OVERWRITE,
    json: bool = options.JSON,
) -> None:
    """Select a circuit of a given number of edges from scores, or one circuit for each of several sizes.

    EAP-IG and MIB can read the files, too. From scores made with --positions, (edge, span) pairs are selected: sizes
    are shares of all pairs, and files are .npz. From scores of nodes or neurons, these are selected: sizes are shares
    of those that have a score.
    """
    if resamples and kappa is not None:
        raise InputError("--resamples and --kappa are two filters; give one of them")
    if intervals.given_intervals and not resamples:
        raise InputError("--interval, --confidence and --threshold belong to the bootstrap; give --resamples too")
    chosen_filter: Filter = NO_FILTER if kappa is None else Shrinkage(kappa)
    if resamples:
        chosen_filter = intervals.build_bootstrap(resamples, seed)
    requested = edges if size is None else size
    if requested is None or None not in (edges, size):
        raise InputError("give the size of the circuit: either --edges 324 (a count) or --size 0.05 (a share)")
    has_sizes = "," in requested
    if limits.nested and not has_sizes:
        raise InputError("--nested needs several sizes: --size 0.01,0.02,0.05")
    chosen_solver = choose("solver", SOLVERS, solver, time_limit=limits.time_limit)
    has_result = (
        not overwrite
        and out_path is not None
        and (out_path.is_dir() and any(out_path.iterdir()) if has_sizes else out_path.is_file())
    )
    if out_path is not None:
        _check_target(out_path, has_sizes, overwrite or has_result, scores)
    ranking, statistics, origin = _read_ranking(scores, chosen_filter, level)
    n_edges, units, parts = ranking.graph.n_edges, ranking.graph.units, requested.split(",")
    counts = sorted(
        parse_count(part, n_edges, units) if size is None else size_to_edges(parse_share(part), n_edges)
        for part in parts
    )
    if len(set(counts)) < len(counts):
        raise InputError(f"{requested} has a size twice ({', '.join(map(str, counts))} {units}); give each once")
    suffix = NPZ if isinstance(ranking.graph, SpanGraph) else ".json"
    names = [f"circuit-{count}{suffix}" if has_sizes else "" for count in counts]
    if out_path is not None and not has_sizes:
        check_holds(out_path, ranking.graph)
    inputs = made_from(
        ranking=ranking.digest, edges=counts, solver=chosen_solver, rank=rank, pnr=pnr, fill=limits.fill,
        nested=limits.nested, filter=chosen_filter,
    )  # fmt: skip
    if has_result and out_path is not None:
        selections = _read_made([out_path / name for name in names], out_path, inputs)
    else:
        problem = SelectionProblem.of(ranking, rank, counts[0], pnr)
        if has_sizes:
            selections = solve_path(problem, counts, chosen_solver, limits.fill, limits.nested)
        else:
            selections = (solve(problem, solver=chosen_solver, fill=limits.fill),)
    options_used: dict[str, Any] = {"rank": rank, "pnr": pnr, "bootstrap": resamples, "kappa": kappa}
    if resamples and statistics is not None:
        options_used["edges_kept_by_bootstrap"] = int(statistics.kept.sum())
        options_used["sign_instability"] = statistics.sign_instability
    records = [selection.record() | options_used | weighted_edges(selection.circuit) for selection in selections]
    if out_path is not None and not has_result:
        with open_partial_store(out_path):
            _check_target(out_path, has_sizes, overwrite, scores)  # another program may have written it meanwhile
            with atomic_folder(out_path, overwrite, CIRCUIT_FILES) if has_sizes else nullcontext(out_path) as draft:
                for name, selection, record in zip(names, selections, records, strict=True):
                    selection.circuit.save(draft / name, ranking.value, origin | record | {KEY: inputs})
    if out_path is not None:
        records = [record | {"out": str(out_path / name)} for name, record in zip(names, records, strict=True)]
    if json:
        print_json({"circuits": records} if has_sizes else records[0])
    else:
        _show(selections, records, pnr)
        title = f"the circuit of {ranking.graph.count(selections[-1].n_requested)}" if has_sizes else "the circuit"
        show_circuit(title, selections[-1].circuit, ranking.value, ranking.signed)


def _read_ranking(
    path: Path, edge_filter: Filter, level: str | None
) -> tuple[Ranking, EdgeStatistics | None, dict[str, Any]]:
    """Return the ranking to select from; of scores, also their statistics and how they were made."""
    if Ranking.is_folder(path):
        if edge_filter != NO_FILTER:
            raise InputError(f"{path} is a ranking, which has no examples to resample; omit the filter")
        ranking = Ranking.load(path)
        check_level(path, ranking.graph, level)
        method = ranking.origin.get("method")
        return ranking, None, {"method": method["name"]} if isinstance(method, Mapping) and "name" in method else {}
    scores = EdgeScores.load(path, level)
    statistics = summarise(scores, edge_filter)
    return statistics.ranking, statistics, dict(scores.provenance)


def _check_target(path: Path, has_sizes: bool, overwrite: bool, scores: Path) -> None:
    """Raise InputError if circuits can't be written to `path`."""
    if has_sizes:
        if path.suffix.lower() in (*EAP_SUFFIXES, NPZ) and not path.is_dir():
            raise InputError(f"circuits of several sizes are written to a folder, but {path} has the suffix of a file")
        check_folder(path, overwrite, CIRCUIT_FILES)
    else:
        check_suffix(path)
        check_file(path, overwrite, [scores])


def _read_made(paths: Sequence[Path], target: Path, inputs: dict[str, Any]) -> tuple[Selection, ...]:
    """Return the selections in place. Raise InputError unless all are there, selected from the same inputs."""
    files: list[EdgeFile] = []
    with suppress(InputError):  # somebody else's file
        files = [read_edge_file(path) for path in paths if path.is_file()]
    check_same(target, files[0].about.get(KEY) if len(files) == len(paths) else None, inputs)
    with wrap_read_errors(target):
        return tuple(Selection.from_record(Circuit(file.graph, file.require_mask()), file.about) for file in files)


def _show(selections: Sequence[Selection], records: list[dict[str, Any]], pnr: float | None) -> None:
    """Print the selections, and how the solver ended."""
    graph = selections[0].circuit.graph
    # Heuristics have no bound.
    hidden = {"gap", "bound"} if selections[-1].status == Status.HEURISTIC else set()
    if len(records) > 1:
        columns = ["edges_asked", "edges_kept", "objective", "gap", "status", "seconds"]
        columns += ["possible_pnr"] if any(record["possible_pnr"] is not None for record in records) else []
        columns = [column for column in columns if column not in hidden]
        rows = [[_cell(record[column]) for column in columns] for record in records]
        print_tables(number_tables([_heading(column, graph) for column in columns], rows, out.width))
    else:
        cells = {
            _heading(name, graph): _cell(value)
            for name, value in records[0].items()
            if value is not None and name not in hidden
        }
        out.print(key_value_table(f"a circuit, {graph.unit}s: {selections[0].n_kept}", cells))
    for status in dict.fromkeys(selection.status for selection in selections):
        say(status.advice)
    if any(selection.possible_pnr is not None for selection in selections):
        reason = f"PNR {pnr:g} asks for more positive {graph.units} than there are"
        say(f"{reason}: possible_pnr is the largest possible share")


def _cell(value: Any) -> str:
    return "-" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def _heading(name: str, graph: BaseGraph) -> str:
    """Return the name of a record's value for a table: `edges_asked` counts what circuits consist of."""
    words = name.replace("_", " ")
    return words.replace("edges", graph.units) if name.startswith("edges") else words
