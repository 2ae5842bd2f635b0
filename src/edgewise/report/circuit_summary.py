"""Open a circuit from a file or a result folder, and summarise it: strongest edges, heads and MLPs, kinds of edges."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isclose
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from ..core.circuit import Circuit
from ..errors import InputError
from ..evaluate.known import known_circuit
from ..graph import LETTERS, BaseGraph, NodeGraph
from ..io.formats import SUFFIX_WORDS, check_level, read_edge_file
from ..method import as_known
from ..recipes.discovery import Discovery, Outcome
from ..results import is_result, read_result
from ..results.submission import circuit_files
from ..select import parse_share
from ..tasks.known import PREFIX
from .formatting import format_number, format_percent, format_score
from .tables import number_tables

TOP = 8
# Columns between tables.
TABLE_GAP = 4
# Kinds of edges by destination, in the order of legends, with their colours (Okabe and Ito's palette).
COLOURS = {"q": "#0072B2", "k": "#E69F00", "v": "#009E73", "MLP": "#CC79A7", "logits": "#000000"}
KINDS = tuple(COLOURS)
# A file of folders without circuits -> advice.
ADVICE = {
    "scores.json": "has scores, but no circuit; select one: edgewise select {} --size 0.05 --out circuit.json",
    "ranking.json": "has a ranking, but no circuit; select one: edgewise select {} --size 0.05 --out circuit.json",
    "study.json": "is a study, which keeps no circuits; run the recipe of interest: edgewise run --help",
}


@dataclass(frozen=True, eq=False)
class OpenCircuit:
    """A circuit with its name and scores.

    score                [edge] signed scores. None if there are none.
    outcome, size_index  the outcome of the run, and the index of the size in its curve. None and 0 for a file.
    reason               how the recipe was chosen, and why this size, where neither was given
    kind                 the method that made the scores; empty if it isn't known
    """

    name: str
    circuit: Circuit
    score: NDArray[np.floating] | None
    outcome: Outcome | None = None
    size_index: int = 0
    reason: str = ""
    kind: str = ""


def open_circuit(
    path: str | Path,
    recipe: str | None = None,
    measure: str | None = None,
    size: str | None = None,
    level: str | None = None,
) -> OpenCircuit:
    """Return the circuit of a file (npz, json or pt), of a folder of such files, of a result folder, or `known/NAME`.

    The parameters are those of `open_run_circuit`. Of a folder of files, this is the last one, of the largest size.
    `level` is that of `read_edge_file`.
    """
    path = Path(path)
    for folder in (path, path.parent) if path.name == "circuits" else (path,):
        if is_result(folder):
            result = read_result(folder)
            check_level(folder, result.run.graph, level)
            return open_run_circuit(result, recipe, measure, size)
    if (recipe, measure, size) != (None, None, None):
        raise InputError(f"--recipe, --measure and --size choose from a result folder, but {path} isn't one")
    name = str(path)
    if os.path.isdir(path):
        files = list_circuits(path)
        path = files[-1]
        name = f"{path}" + f" (the last of {len(files)} circuits; give another file to open it)" * (len(files) > 1)
    elif not os.path.lexists(path) and path.as_posix().startswith(PREFIX):
        return OpenCircuit(path.as_posix(), known_circuit(path.as_posix()), None)
    file = read_edge_file(path, level)
    circuit, score, kind = Circuit(file.graph, file.require_mask()), file.score, ""
    if score is not None and not (np.isfinite(score[circuit.mask]).all() and score[circuit.mask].any()):
        score = None  # files without scores have zeros, or none for some edges
    if score is not None:
        score, method = np.nan_to_num(score), file.about.get("method", "")
        kind = method if isinstance(method, str) else ""
    return OpenCircuit(name, circuit, score, kind=kind)


def list_circuits(folder: Path) -> list[Path]:
    """Return the circuit files of a folder, or of the circuits/ of a result folder, by name and size."""
    for marker, advice in ADVICE.items():
        if os.path.isfile(folder / marker):
            raise InputError(f"{folder} {advice.format(folder)}")
    files = circuit_files(folder / "circuits" if is_result(folder) else folder)
    if not files:
        raise InputError(f"{folder} has no circuits: no file in it ends in {SUFFIX_WORDS}; give a folder of circuits")
    return files


def open_run_circuit(
    result: Discovery, recipe: str | None = None, measure: str | None = None, size: str | None = None
) -> OpenCircuit:
    """Return a circuit of a run.

    recipe   its name, in any case; by default the recipe that was chosen
    measure  CMD or CPR; by default the run's first
    size     a share of the edges such as 0.05 or 5%; by default the smallest that is faithful
    """
    rows = {row.name: row for row in result.of(result.measures[0] if measure is None else measure)}
    chosen = next(iter(rows.values())).measure
    row = result.best(chosen) if recipe is None else rows[as_known(f"recipe for {chosen.name}", recipe, rows)]
    place, reason = _find_size(row, size)
    kind = result.settings.scorer.name
    if recipe is None:
        reason = "; ".join(filter(None, (f"recipe: {row.name}, {result.choice(chosen)}", reason)))
    name = (
        f"{row.name} for {chosen.name} at {format_percent(row.curve.shares[place])} % of the {result.run.graph.units}"
    )
    return OpenCircuit(name, row.selections[place].circuit, result.mean_scores, row, place, reason, kind)


def _find_size(row: Outcome, size: str | None) -> tuple[int, str]:
    """Return the place of a size, or the place of the default size and the reason for it."""
    curve, measure, place = row.curve, row.measure, row.default_size
    values = row.sizing_faithfulness
    if size is None and measure.is_faithful(values)[place]:
        return place, f"{measure.smallest_faithful} on {row.sized_on}"
    if size is None:
        parts = [float(value) for value, share in zip(values, curve.shares, strict=True) if share < 1]
        nearest = min(parts, key=lambda value: abs(1 - value), default=float(values[place]))
        reason = f"no size has faithfulness {measure.target} on {row.sized_on}"
        return place, f"{reason}; the nearest is {format_number(nearest, digits=2)}"
    number = parse_share(size)
    for place, share in enumerate(curve.shares):
        if isclose(share, number):
            return place, ""
    shares = ", ".join(f"{share:g}" for share in curve.shares)
    raise InputError(
        f"there is no circuit of size {size!r}; choose a share of the {row.selections[0].circuit.graph.units}: {shares}"
    )


def edge_kinds(graph: BaseGraph) -> NDArray[np.int64]:
    """Return the kind of each edge [edge] as its place in `KINDS`."""
    plain = graph.plain
    layer = np.append(np.repeat(np.arange(len(LETTERS)), plain.n_heads), KINDS.index("MLP"))
    kinds = np.append(np.tile(layer, plain.n_layers), KINDS.index("logits"))[plain.edge_destination]
    return graph.from_plain(kinds)


def describe(
    circuit: Circuit, score: NDArray[np.floating] | None = None, signed: bool = True, top: int = TOP
) -> dict[str, Any]:
    """Summarise a circuit.

    score   [edge] without it, edges have the graph's order and nodes are sorted by their number of edges
    signed  whether the signs of scores have a meaning
    top     the number of edges and nodes to list

    Return a record for JSON and for `circuit_tables`:

    edges, of     the number of edges in the circuit and in the graph
    unit          the word for one of them: 'edge', '(edge, span) pair', 'node' or 'neuron'
    heads, mlps   the number of heads and MLPs with an edge in the circuit
    strongest     name and score of the edges of the largest absolute scores
    nodes         heads and MLPs by the total of their edges' absolute scores, with that total and numbers of edges
    kinds, signs  the number of edges by kind, and by the sign of their score. `signs` is None where signs have no
                  meaning.

    Of a circuit of nodes or neurons, `edges` are these, nodes have their number of neurons and of edges among the
    circuit's nodes, and there are no kinds.
    """
    if top < 1:
        raise InputError(f"the number of edges to name must be at least 1, not {top}")
    graph, chosen = circuit.graph, np.flatnonzero(circuit.mask)
    values = None if score is None else np.asarray(score, np.float64)[chosen]
    weight = np.ones(len(chosen)) if values is None else np.abs(values)
    kinds, neurons = {}, None
    if isinstance(graph, NodeGraph):
        plain, edges = graph.plain, np.flatnonzero(circuit.plain().mask)
        members = graph.members[chosen] // graph.width
        node_names, starts, ends = plain.node_names, plain.edge_source[edges], plain.edge_target[edges]
        total = np.bincount(members, weight, plain.n_nodes)
        used = plain_used = np.flatnonzero(graph.member_mask(circuit.mask)[1:].any(1)) + 1
        if graph.width > 1:
            neurons = np.bincount(members, minlength=plain.n_nodes)
    else:
        node_names, starts, ends = graph.node_names, graph.edge_source[chosen], graph.edge_target[chosen]
        total = np.bincount(np.concatenate([starts, ends]), np.tile(weight, 2), graph.n_nodes)
        used = np.flatnonzero(circuit.node_mask[1:-1]) + 1  # neither input nor logits
        plain_used = np.unique(graph.plain_node[used])
        kinds = dict(zip(KINDS, np.bincount(edge_kinds(graph)[chosen], minlength=len(KINDS)).tolist(), strict=True))
    n_heads = graph.plain.n_heads
    n_mlps = int(((plain_used - 1) % (n_heads + 1) == n_heads).sum())
    outgoing, incoming = (np.bincount(nodes, minlength=len(total)).tolist() for nodes in (starts, ends))
    nodes = [
        {"name": node_names[node], "total": None if values is None else float(total[node]),
         "edges_in": incoming[node], "edges_out": outgoing[node]}
        | ({} if neurons is None else {"neurons": int(neurons[node])})
        for node in used[np.argsort(-total[used], kind="stable")][:top].tolist()
    ]  # fmt: skip
    order = range(len(chosen)) if values is None else np.argsort(-weight, kind="stable")
    strongest = [
        {"name": graph.edge_name(int(chosen[at])), "score": None if values is None else float(values[at])}
        for at in order[:top]
    ]
    signs = None
    if signed and values is not None:
        comparisons = {"positive": values > 0, "negative": values < 0, "zero": values == 0}
        signs = {name: int(has_sign.sum()) for name, has_sign in comparisons.items()}
    return {
        "edges": len(chosen), "of": graph.n_edges, "unit": graph.unit, "heads": len(plain_used) - n_mlps,
        "mlps": n_mlps, "strongest": strongest, "nodes": nodes, "kinds": kinds, "signs": signs,
    }  # fmt: skip


def summary_sentence(summary: Mapping[str, Any]) -> str:
    """Return the size and the kinds of edges of a summary in one line."""
    size = "{edges:,} of {of:,} {unit}s ({share:.1%}), heads: {heads:,}, MLPs: {mlps:,}".format(
        **summary, share=summary["edges"] / summary["of"]
    )
    parts = (summary["kinds"], summary["signs"] or {})
    counts = [", ".join(f"{count:,} {name}" for name, count in part.items() if count) for part in parts]
    return "; ".join(filter(None, (size, *counts)))


def circuit_tables(summary: Mapping[str, Any], width: int) -> list[Table]:
    """Return tables of the strongest edges and of nodes, side by side if the width allows."""
    if not summary["edges"]:
        return []
    has_scores = all(edge["score"] is not None for edge in summary["strongest"])
    noun = {"node": "nodes", "neuron": "neurons", "edge": "edges"}.get(summary["unit"], "pairs")
    heading = f"strongest {noun}" if has_scores else noun
    tables = edge_tables(heading, summary["strongest"], width, summary["signs"] is not None)
    rows: list[list[Any]] = []
    has_totals = any(node["total"] is not None for node in summary["nodes"])
    for node in summary["nodes"]:
        totals = [format_score(node["total"], signed=False)] if has_totals else []
        neurons = [node["neurons"]] if "neurons" in node else []
        rows.append([node["name"], *totals, *neurons, node["edges_in"], node["edges_out"]])
    if rows:
        neurons = ["neurons"] * ("neurons" in summary["nodes"][0])
        tables += number_tables(("heads and MLPs", *(["total"] * has_totals), *neurons, "in", "out"), rows, width)
    return beside(tables, width)


def edge_tables(heading: str, edges: Sequence[Mapping[str, Any]], width: int, signed: bool = True) -> list[Table]:
    """Return a table of edges, with their scores if every edge has one."""
    if any(edge["score"] is None for edge in edges):
        return number_tables((heading,), [(edge["name"],) for edge in edges], width)
    rows = [(edge["name"], format_score(edge["score"], signed)) for edge in edges]
    return number_tables((heading, "score"), rows, width)


def beside(tables: Sequence[Table], width: int) -> list[Table]:
    """Return tables side by side if the width allows, else as they are."""
    console = Console(width=width)
    widths = [Measurement.get(console, console.options, table).maximum for table in tables]
    if len(tables) < 2 or sum(widths) + TABLE_GAP * (len(tables) - 1) > width:
        return list(tables)
    grid = Table.grid(padding=(0, TABLE_GAP, 0, 0))
    grid.add_row(*tables)
    return [grid]
