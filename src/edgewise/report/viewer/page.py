"""The viewer as one HTML file that needs neither a server nor the web.

Besides its style and scripts, the page has two blocks of data:

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
import zlib
from collections.abc import Iterator
from dataclasses import asdict, fields
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...graph import SpanGraph
from ...recipes.run_info import MAX_PROMPTS
from ...version import __version__
from .view import View, ViewRow, ViewRun

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
