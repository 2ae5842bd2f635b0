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
from dataclasses import asdict
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...graph import SpanGraph
from ...recipes.run_info import MAX_PROMPTS
from ...version import __version__
from .view import View

FORMAT, FORMAT_VERSION = "edgewise-view", 1
# A page with more edges would be slow to open.
MAX_EDGES = 200_000
MANTISSA = 12


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
        "about": json.dumps(about, ensure_ascii=True, separators=(",", ":")).replace("<", r"\u003c"),
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
    edges = _strongest(view)
    block, positions, places = bytearray(), dict[bytes, int](), dict[str, dict[str, Any]]()
    for name, kind, values in _arrays(view, edges):
        if values is not None:
            packed = _pack(kind, values)
            if packed not in positions:
                positions[packed] = len(block)
                block += packed
            places[name] = {"kind": kind, "shape": values.shape, "at": positions[packed]}
    about = {
        "format": FORMAT, "version": FORMAT_VERSION, "edgewise": __version__, "title": view.title,
        "graph": asdict(view.graph.plain) | {"edges": view.graph.n_edges, "held": len(edges), "spans": _spans(view)},
        "shown": view.shown, "size": view.size, "unit": view.unit,
        "runs": [
            {
                "name": run.name, "scored": bool(run.mean.any()), "definition": run.definition,
                "facts": dict(run.facts), "examples": 0 if run.full is None else len(run.full),
                "prompts": [asdict(prompt) for prompt in run.prompts[:MAX_PROMPTS]],
                "patterns": None if run.attention is None
                else {"examples": run.attention.examples, "heads": run.attention.heads},
            }
            for run in view.runs
        ],
        "rows": [
            {
                "run": row.run, "benchmark": row.measure, "method": row.method, "parameters": row.parameters,
                "better": row.better, "area": row.area, "interval": row.interval,
                "sizes": [asdict(size) for size in row.sizes],
                "goal": row.goal, "reached": row.reached, "tested": row.tested,
            }
            for row in view.rows
        ],
        "arrays": places,
    }  # fmt: skip
    return about, zlib.compress(block, 9)


def _spans(view: View) -> list[str]:
    """Return the names of the spans if circuits are of (edge, span) pairs."""
    return list(view.graph.spans) if isinstance(view.graph, SpanGraph) else []


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


def _arrays(view: View, edges: NDArray[np.intp]) -> Iterator[tuple[str, str, NDArray[Any] | None]]:
    """Yield the name, the kind and the values of each array; None if a run or a row lacks it."""
    graph = view.graph.plain
    yield "source", "u2" if graph.n_sources < 2**16 else "u4", view.graph.from_plain(graph.edge_source)[edges]
    destination = view.graph.from_plain(graph.edge_destination)[edges]
    yield "destination", "u2" if graph.n_destinations < 2**16 else "u4", destination
    yield "span", "u2", edges % len(_spans(view)) if _spans(view) else None
    yield "truth", "bits", None if view.truth is None else view.truth.mask[edges]
    prompts = slice(MAX_PROMPTS)
    for place, run in enumerate(view.runs):
        for part, kind, index in (
            ("mean", "f4", edges), ("low", "f4", edges), ("high", "f4", edges), ("unstable", "bits", edges),
            ("full", "f4", prompts), ("empty", "f4", prompts),
            ("edge_effects", "f4", edges), ("superfluous", "bits", edges), ("node_effects", "f4", slice(None)),
        ):  # fmt: skip
            values = getattr(run, part)
            yield f"run{place}.{part}", kind, None if values is None else values[index]
        for number, pattern in enumerate(() if run.attention is None else run.attention.values):
            yield f"run{place}.pattern{number}", "u1", pattern
    for place, row in enumerate(view.rows):
        yield f"row{place}.masks", "bits", np.stack([circuit.mask[edges] for circuit in row.circuits])
        neurons = None if row.neurons is None else row.neurons.astype(np.uint32)
        yield f"row{place}.neurons", "u4", neurons
        yield f"row{place}.metric", "f4", None if row.metric is None else row.metric[:, prompts]
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
