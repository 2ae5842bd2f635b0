"""The viewer: circuits of one graph, the scores of its edges and the results on examples, as one HTML file.

The page needs neither a server nor the web. Besides its style and scripts, the page has two blocks of data:

about   JSON: the graph, runs and rows, and the position of each array
arrays  all arrays, concatenated, deflated, in base64

Edges are sorted by absolute score, so that the strongest are a prefix and masks deflate well. Kinds of arrays:

f4          floats with 12 bits of mantissa, their bytes in four planes: the last bytes of all, ..., the first of all
u1, u2, u4  unsigned integers, little-endian
bits        packed, the first in the highest bit; each row of the shape starts at a new byte
"""

from __future__ import annotations

import base64
import html
import json
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...core.circuit import Circuit
from ...core.ranking import Ranking
from ...errors import InputError
from ...evaluate import Attention, faithfulness_intervals
from ...graph import BaseGraph, Graph, NodeGraph, SpanGraph
from ...io.formats import FORMATS, EdgeFile, check_level, read_edge_file
from ...learn import Learner
from ...recipes.discovery import Discovery, Outcome
from ...recipes.run_info import MAX_PROMPTS, Prompt
from ...results import is_result, read_result
from ...results.submission import SIZE_SUFFIX, circuit_files
from ...study import is_study
from ...version import __version__
from ..formatting import short_name
from ..overview import centred_statistics, run_facts
from ..verification import read_verification

FloatArray = NDArray[np.floating]
FORMAT, FORMAT_VERSION = "edgewise-view", 1
# A page with more edges would be slow to open.
MAX_EDGES = 200_000
MANTISSA = 12
# The arrays of a run: name -> kind and axis.
RUN_ARRAYS = {
    "mean": ("f4", "edge"), "low": ("f4", "edge"), "high": ("f4", "edge"), "unstable": ("bits", "edge"),
    "full": ("f4", "example"), "empty": ("f4", "example"),
    "edge_effects": ("f4", "edge"), "superfluous": ("bits", "edge"), "node_effects": ("f4", "node"),
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class ViewRun:
    """A run, or the file of a circuit: the scores of the edges, and the examples.

    facts        name -> text, for the About tab
    mean, low, high, unstable
                 [edge] signed scores, their interval, and whether the sign changes between resamples. None without
                 resamples.
    full, empty  [example] the metric of the model and of the empty circuit. None without an evaluation.
    definition   the name of the definition of faithfulness
    unit         what the sizes of its circuits count, in singular
    prompts      the first of the evaluated examples
    edge_effects [edge] how much faithfulness the tested circuit loses without the edge. None if none was tested.
    superfluous  [edge] whether the test of minimality calls the edge superfluous
    node_effects [node] how much faithfulness the tested circuit loses without the head or MLP
    """

    name: str
    facts: Mapping[str, str]
    mean: FloatArray
    low: FloatArray | None = None
    high: FloatArray | None = None
    unstable: NDArray[np.bool_] | None = None
    full: FloatArray | None = None
    empty: FloatArray | None = None
    definition: str = ""
    prompts: tuple[Prompt, ...] = ()
    attention: Attention | None = None
    edge_effects: FloatArray | None = None
    superfluous: NDArray[np.bool_] | None = None
    node_effects: FloatArray | None = None
    unit: str = "edge"


@dataclass(frozen=True)
class ViewSize:
    """One circuit of a row: edges asked for and kept, and its faithfulness; None if it wasn't evaluated."""

    share: float
    asked: int
    kept: int
    faithfulness: float | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, eq=False)
class ViewRow:
    """A recipe's circuits, one per size.

    run         the place of its run
    measure     CPR, CMD, or empty for a circuit from a file
    parameters  the recipe's parameters as text
    better      1 if a higher area is better, else -1
    metric      [size, example] the metric of every circuit
    value       [edge] the learned ranking that selected the circuits. None if the run's scores did.
    goal        the faithfulness that circuits should have, in words such as "0.9 or more"
    reached     the place of the smallest size that has it. None if no size below the full model has it.
    neurons     [size, source] of circuits of neurons, the number of neurons of every node
    tested      the places of the sizes whose circuit is the one that was tested
    """

    run: int
    measure: str
    method: str
    sizes: tuple[ViewSize, ...]
    circuits: tuple[Circuit, ...]
    parameters: str = ""
    better: int = 0
    area: float | None = None
    interval: tuple[float, float] | None = None
    metric: FloatArray | None = None
    value: FloatArray | None = None
    goal: str = ""
    reached: int | None = None
    neurons: NDArray[np.intp] | None = None
    tested: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False)
class View:
    """The content of a page. All runs and circuits have the same graph.

    `shown` is the place of the row that is shown first, `size` the place of its size. `truth` is a known circuit that
    the page compares all circuits with.
    """

    title: str
    graph: BaseGraph
    runs: tuple[ViewRun, ...]
    rows: tuple[ViewRow, ...]
    shown: int = 0
    size: int = 0
    truth: Circuit | None = None


def view_of(paths: Sequence[str | Path], truth: Circuit | None = None, level: str | None = None) -> View:
    """Return the view of result folders, circuit files and folders of circuits, which must have one graph.

    `level` is that of `read_edge_file`. Circuits of nodes and neurons are shown as the edges among their nodes. The
    page marks which edges of a circuit are true, wrong or missed if `truth`, a known circuit, is given.
    """
    parts = [plain_view(_part(Path(path), level)) for path in paths]
    if not parts:
        raise InputError("there is nothing to show; give a result folder or a circuit file")
    first, titles = parts[0], [part.title for part in parts]
    if truth is not None and truth.graph != first.graph:
        raise InputError(
            f"the known circuit is of {truth.graph}, but {paths[0]} of {first.graph}; give a circuit of the same model"
        )
    names: list[str] = []  # equal ones get the name of their folder, and a number if that is not enough
    for path, part in zip(paths, parts, strict=True):
        if part.graph != first.graph:
            raise InputError(f"{path} is of {part.graph}, but {paths[0]} of {first.graph}; show them on separate pages")
        names.append(f"{part.title} ({Path(path).name})" if titles.count(part.title) > 1 else part.title)
    names = [f"{name} {number}" if names.count(name) > 1 else name for number, name in enumerate(names, start=1)]
    runs: list[ViewRun] = []
    rows: list[ViewRow] = []
    for name, part in zip(names, parts, strict=True):
        rows += [replace(row, run=len(runs) + row.run) for row in part.rows]
        runs += [replace(run, name=name) if len(part.runs) == 1 else run for run in part.runs]
    return replace(first, title=" and ".join(dict.fromkeys(names)), runs=tuple(runs), rows=tuple(rows), truth=truth)


def plain_view(view: View) -> View:
    """Return a view of nodes or neurons as one of edges, which have the scores of their sources."""
    graph = view.graph
    if not isinstance(graph, NodeGraph):
        return view

    def spread(values: NDArray[Any] | None) -> NDArray[Any] | None:
        return None if values is None else graph.plain_score(values)

    runs = []
    for run in view.runs:
        facts = {**run.facts, "circuits of": f"{graph.unit}s: edges have the score of their source"}
        unstable = None if run.unstable is None else graph.plain_score(run.unstable) > 0
        run = replace(run, mean=graph.plain_score(run.mean), facts=facts, unit=graph.unit)
        if graph.width > 1:  # intervals and signs of single neurons say nothing of those of their sum
            runs.append(replace(run, low=None, high=None, unstable=None))
        else:
            runs.append(replace(run, low=spread(run.low), high=spread(run.high), unstable=unstable))
    rows = []
    for row in view.rows:
        counts = [graph.member_mask(circuit.mask).sum(1) for circuit in row.circuits]
        plain = tuple(circuit.plain() for circuit in row.circuits)
        neurons = np.stack(counts) if graph.width > 1 else None
        # The page counts edges.
        sizes = tuple(
            replace(size, asked=circuit.n_edges, kept=circuit.n_edges)
            for size, circuit in zip(row.sizes, plain, strict=True)
        )
        rows.append(replace(row, sizes=sizes, circuits=plain, value=spread(row.value), neurons=neurons))
    return replace(view, graph=graph.plain, runs=tuple(runs), rows=tuple(rows))


def _part(path: Path, level: str | None) -> View:
    """Return the view of one path. Circuit files whose names differ only by their sizes become one row."""
    if is_result(path):
        result = read_result(path)
        check_level(path, result.run.graph, level)
        return view_of_run(result, read_verification(path))
    if is_study(path):
        raise InputError(f"{path} is a study, which has curves but no circuits; show a result folder of `edgewise run`")
    paths = circuit_files(path) if os.path.isdir(path) else [path]
    if not paths or os.path.isfile(path / "scores.json"):
        raise InputError(f"{path} has no circuits to show; give a result folder, or files of circuits")
    files = [read_edge_file(file, level) for file in paths]
    graph = files[0].graph
    if any(file.graph != graph for file in files):
        raise InputError(f"the circuits in {path} are of different graphs; show them on separate pages")
    groups: dict[str, list[EdgeFile]] = {}
    for file in sorted(files, key=lambda file: np.count_nonzero(file.require_mask())):
        groups.setdefault(SIZE_SUFFIX.sub("", file.path.stem) if len(files) > 1 else file.path.stem, []).append(file)
    name = path.stem if path.suffix in FORMATS else path.name
    runs: list[ViewRun] = []
    rows: list[ViewRow] = []
    for label, group in groups.items():  # smallest first; an edge has the score of the largest file that has one for it
        score, about = np.full(graph.n_edges, np.nan), group[-1].about
        for file in reversed(group):
            score = score if file.score is None else np.where(np.isnan(score), file.score, score)
        facts = {"file": group[-1].path.name} | {key: str(about[key]) for key in ("model", "task") if key in about}
        circuits = tuple(Circuit(graph, file.require_mask()) for file in group)
        circuits = tuple(circuit for circuit in circuits if circuit.n_edges) or circuits[-1:]  # leave out empty ones
        sizes = tuple(ViewSize(c.n_edges / graph.n_edges, c.n_edges, c.n_edges) for c in circuits)
        rows.append(ViewRow(len(runs), "", label, sizes, circuits))
        runs.append(ViewRun(label, facts, np.nan_to_num(score)))
    return View(name, graph, tuple(runs), tuple(rows), size=len(rows[0].sizes) // 2)


def view_of_run(discovery: Discovery, verification: Mapping[str, Any] | None = None) -> View:
    """Return the view of one run, with the tests of its circuit, as `verify_circuit` records them, if there are any."""
    run = discovery.run
    statistics, curve = centred_statistics(discovery), discovery.outcomes[0].curve
    name = " · ".join(dict.fromkeys((short_name(run.model), short_name(run.task))))
    facts = run_facts(discovery)
    for learner, ranking in discovery.learned.items():
        origin, measure = ranking.origin, learner.measure.name
        parts = [f"{origin['steps']:,} steps"] if origin.get("steps") is not None else []
        if origin.get("validation"):
            areas = ", ".join(f"{area:.4f} after {step:,}" for step, area in origin["validation"])
            parts.append(f"{measure} on {origin['validation_examples']} validation examples: {areas}")
        if parts:
            facts[f"learned for {measure}"] = "; ".join(parts)
    facts["made with"] = f"edgewise {run.versions.get('edgewise', '')}, seed {run.seed}"
    view_run = ViewRun(
        name, facts, statistics.mean, statistics.low, statistics.high, statistics.sign_unstable, curve.full,
        curve.empty, curve.definition.name, discovery.prompts, discovery.attention,
    )  # fmt: skip
    rows = tuple(_row(outcome, discovery.learned) for outcome in discovery.outcomes)
    first = discovery.best(discovery.measures[0])
    names, share = [(row.measure, row.method) for row in rows], first.curve.shares[first.default_size]
    shown = names.index((first.measure.name, first.name))
    view = View(name, run.graph, (view_run,), rows, shown, [size.share for size in rows[shown].sizes].index(share))
    return view if verification is None else with_tests(view, verification)


def with_tests(view: View, verification: Mapping[str, Any]) -> View:
    """Return a view of one run with the effects and the superfluous edges of its tested circuit.

    Nothing is added to a view of pairs, nodes or neurons, or if the tests are of a circuit of another graph.
    """
    graph, effects = view.graph, dict(verification["edge_effects"])
    if not isinstance(graph, Graph) or not effects:
        return view
    places = {name: place for place, name in enumerate(graph.edge_names)}
    if not effects.keys() <= places.keys():
        return view
    edges = [places[name] for name in effects]
    edge_effects, node_effects = np.zeros(graph.n_edges), np.zeros(graph.n_sources + 1)
    edge_effects[edges] = list(effects.values())
    for place, name in enumerate(graph.source_names):
        node_effects[place] = verification["node_effects"].get(name, 0.0)
    mask = np.isin(np.arange(graph.n_edges), edges)
    superfluous = np.isin(np.array(graph.edge_names), verification["superfluous"])
    run = replace(view.runs[0], edge_effects=edge_effects, superfluous=superfluous, node_effects=node_effects)
    rows = tuple(
        replace(
            row, tested=tuple(place for place, c in enumerate(row.circuits) if np.array_equal(c.prune().mask, mask))
        )
        for row in view.rows
    )
    return replace(view, runs=(run,), rows=rows)


def _row(outcome: Outcome, learned: Mapping[Learner, Ranking]) -> ViewRow:
    """Return an outcome's circuits of the sizes that ask for an edge, or of the last size if none does."""
    curve, area, circuits = outcome.curve, outcome.resampled.interval(), outcome.circuits
    intervals = faithfulness_intervals(curve.values, curve.full, curve.empty, curve.definition)
    places = curve.nonempty_sizes or [len(curve.n_requested) - 1]
    sizes = tuple(
        ViewSize(curve.shares[at], curve.n_requested[at], curve.n_kept[at],
                 intervals[at].estimate, intervals[at].low, intervals[at].high)
        for at in places
    )  # fmt: skip
    ranking = None if outcome.recipe.learner is None else learned.get(outcome.recipe.learner)
    place = curve.default_size(outcome.measure)  # a fact of the curve, whichever size is shown first
    is_reached = outcome.measure.is_faithful(curve.faithfulness)[place]
    return ViewRow(
        0, outcome.measure.name, outcome.name, sizes, tuple(circuits[place] for place in places),
        outcome.recipe.parameter_text, outcome.measure.better, outcome.area, (area.low, area.high),
        curve.values[places], None if ranking is None else ranking.value,
        outcome.measure.target, places.index(place) if is_reached else None,
    )  # fmt: skip


def page_of(view: View) -> str:
    """Return the page of a view. Equal views give equal pages."""
    about, arrays = _packed(view)
    assets = {file.name: file.read_text("utf-8") for file in files(__package__).joinpath("assets").iterdir()}
    scripts = {
        f"edgewise/{name}": "data:text/javascript;base64," + base64.b64encode(text.encode()).decode()
        for name, text in sorted(assets.items())
        if name.endswith(".js")
    }
    parts = {
        # File names may have bytes that are not valid text.
        "title": html.escape(view.title.encode("utf-8", "replace").decode(), quote=False),
        **{name.removesuffix(".css"): text for name, text in assets.items() if name.endswith(".css")},
        "imports": json.dumps({"imports": scripts}),
        "about": json.dumps(about, default=asdict, separators=(",", ":")).replace("<", r"\u003c"),
        "arrays": base64.b64encode(arrays).decode(),
    }
    before, *rest = assets["page.html"].split("<!--")
    pieces = [before]
    for piece in rest:  # a comment with the name of a part is replaced by the part
        name, _, after = piece.partition("-->")
        pieces.append(parts[name.strip()] + after if name.strip() in parts else "<!--" + piece)
    return "".join(pieces)


def _packed(view: View) -> tuple[dict[str, Any], bytes]:
    """Return the page's two blocks of data. Equal arrays are packed once."""
    edges, spans = _strongest(view), list(view.graph.spans) if isinstance(view.graph, SpanGraph) else []
    block, positions, places = bytearray(), dict[bytes, int](), dict[str, dict[str, Any]]()
    for name, kind, values in _arrays(view, edges, len(spans)):
        if values is not None:
            packed = _pack(kind, values)
            if packed not in positions:
                positions[packed] = len(block)
                block += packed
            places[name] = {"kind": kind, "shape": values.shape, "at": positions[packed]}
    runs = []
    for run in view.runs:
        attention = run.attention and {"examples": run.attention.examples, "heads": run.attention.heads}
        n_examples, prompts = 0 if run.full is None else len(run.full), run.prompts[:MAX_PROMPTS]
        runs.append(
            _plain_fields(run)
            | {"scored": bool(run.mean.any()), "examples": n_examples, "prompts": prompts, "patterns": attention}
        )
    about = {
        "format": FORMAT, "version": FORMAT_VERSION, "edgewise": __version__, "title": view.title,
        "graph": asdict(view.graph.plain) | {"edges": view.graph.n_edges, "held": len(edges), "spans": spans},
        "shown": view.shown, "size": view.size, "runs": runs, "rows": list(map(_plain_fields, view.rows)),
        "arrays": places,
    }  # fmt: skip
    return about, zlib.compress(block, 9)


def _plain_fields(record: ViewRun | ViewRow) -> dict[str, Any]:
    """Return the fields of a run or a row that are not packed as arrays."""
    packed = {*RUN_ARRAYS, "attention", "circuits", "neurons", "metric", "value"}
    return {field.name: getattr(record, field.name) for field in fields(record) if field.name not in packed}


def _strongest(view: View) -> NDArray[np.intp]:
    """Return the edges of the page, strongest first: all, or `MAX_EDGES` of the smallest circuits."""
    strength = np.max([np.abs(run.mean) for run in view.runs], axis=0)
    if view.graph.n_edges <= MAX_EDGES:
        return np.argsort(-strength, kind="stable")
    smallest = np.full(view.graph.n_edges, np.inf) if view.truth is None else np.where(view.truth.mask, 0, np.inf)
    for row in view.rows:
        for circuit in row.circuits:
            np.minimum(smallest, np.where(circuit.mask, circuit.n_edges, np.inf), out=smallest)
    first = np.lexsort((-strength, smallest))[:MAX_EDGES]
    return first[np.argsort(-strength[first], kind="stable")]


def _arrays(view: View, edges: NDArray[np.intp], n_spans: int) -> Iterator[tuple[str, str, NDArray[Any] | None]]:
    """Yield the name, the kind and the values of each array; None if a run or a row lacks it."""
    graph = view.graph.plain
    yield "source", "u2" if graph.n_sources < 2**16 else "u4", view.graph.from_plain(graph.edge_source)[edges]
    destination = view.graph.from_plain(graph.edge_destination)[edges]
    yield "destination", "u2" if graph.n_destinations < 2**16 else "u4", destination
    yield "span", "u2", edges % n_spans if n_spans else None
    yield "truth", "bits", None if view.truth is None else view.truth.mask[edges]
    shown: dict[str, Any] = {"edge": edges, "example": slice(MAX_PROMPTS), "node": slice(None)}
    for place, run in enumerate(view.runs):
        for name, (kind, axis) in RUN_ARRAYS.items():
            values = getattr(run, name)
            yield f"run{place}.{name}", kind, None if values is None else values[shown[axis]]
        for number, pattern in enumerate(() if run.attention is None else run.attention.values):
            yield f"run{place}.pattern{number}", "u1", pattern
    for place, row in enumerate(view.rows):
        yield f"row{place}.masks", "bits", np.stack([circuit.mask[edges] for circuit in row.circuits])
        yield f"row{place}.neurons", "u4", row.neurons
        yield f"row{place}.metric", "f4", None if row.metric is None else row.metric[:, shown["example"]]
        yield f"row{place}.value", "f4", None if row.value is None else row.value[edges]


def _pack(kind: str, values: NDArray[Any]) -> bytes:
    """Return the bytes of an array.

    Floats keep `MANTISSA` bits, and equal byte positions are stored together, so that zlib compresses well.
    """
    if kind == "bits":
        return np.packbits(values, axis=-1).tobytes()
    if kind != "f4":
        return np.ascontiguousarray(values, f"<{kind}").tobytes()
    largest = np.finfo(np.float32).max / 2
    bits = np.ascontiguousarray(np.clip(values, -largest, largest), "<f4").ravel().view("<u4")
    dropped = 23 - MANTISSA
    # Adding half of the dropped bits rounds instead of truncating.
    rounded = (bits + np.uint32(1 << (dropped - 1))) >> np.uint32(dropped) << np.uint32(dropped)
    return rounded.astype("<u4").view(np.uint8).reshape(values.size, 4).T.tobytes()
