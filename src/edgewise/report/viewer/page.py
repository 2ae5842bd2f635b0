"""The viewer as one HTML file that needs neither a server nor the web.

Besides its style and scripts, the page has two blocks of data:

about
    JSON: the graph, runs and rows, and the position of each array.
arrays
    All arrays, concatenated, deflated, in base64.

Edges are sorted by absolute score, so that the strongest are a prefix and masks deflate well. Kinds of arrays:

f4
    Floats with 12 bits of mantissa, their bytes in four planes: the last bytes of all, ..., the first bytes of all.
u1, u2, u4
    Unsigned integers, little-endian.
bits
    Packed, the first in the highest bit; each row of the shape starts at a new byte.
"""

from __future__ import annotations

import base64
import html
import json
import zlib
from dataclasses import asdict
from importlib.resources import files
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...recipes.run_info import MAX_PROMPTS
from ...version import __version__
from .view import View, ViewRow, ViewRun

FORMAT, FORMAT_VERSION = "edgewise-view", 1
# A page with more edges would be slow to open.
MAX_EDGES = 200_000
MANTISSA = 12


def page_of(view: View) -> str:
    """Return the page of a view. Equal views give equal pages."""
    about, arrays = _packed(view)
    parts = {
        "title": _escaped(view.title),
        **{name.removesuffix(".css"): _asset(name) for name in _assets(".css")},
        "imports": json.dumps({"imports": {f"edgewise/{name}": _module(name) for name in _assets(".js")}}),
        "about": json.dumps(about, ensure_ascii=True, separators=(",", ":")).replace("<", r"\u003c"),
        "arrays": base64.b64encode(arrays).decode(),
    }
    before, *rest = _asset("page.html").split("<!--")
    pieces = [before]
    for piece in rest:  # a comment with the name of a part is replaced by the part
        name, _, after = piece.partition("-->")
        pieces.append(parts[name.strip()] + after if name.strip() in parts else "<!--" + piece)
    return "".join(pieces)


def _packed(view: View) -> tuple[dict[str, Any], bytes]:
    edges = _strongest(view)
    arrays = _Arrays()
    graph = view.graph
    arrays.add("source", "u2" if graph.n_sources < 2**16 else "u4", graph.edge_source[edges])
    arrays.add("destination", "u2" if graph.n_destinations < 2**16 else "u4", graph.edge_destination[edges])
    about = {
        "format": FORMAT,
        "version": FORMAT_VERSION,
        "edgewise": __version__,
        "title": view.title,
        "graph": asdict(graph) | {"edges": graph.n_edges, "held": len(edges)},
        "shown": view.shown,
        "size": view.size,
        "runs": [_run(run, f"run{place}", edges, arrays) for place, run in enumerate(view.runs)],
        "rows": [_row(row, f"row{place}", edges, arrays) for place, row in enumerate(view.rows)],
    }
    return about | {"arrays": arrays.places}, zlib.compress(b"".join(arrays.parts), 9)


def _strongest(view: View) -> NDArray[np.intp]:
    """Return the edges of the page, strongest first: all, or `MAX_EDGES` of the smallest circuits."""
    strength = np.max([np.abs(run.mean) for run in view.runs], axis=0)
    if view.graph.n_edges <= MAX_EDGES:
        return np.argsort(-strength, kind="stable")
    smallest = np.full(view.graph.n_edges, np.inf)
    for row in view.rows:
        for circuit in row.circuits:
            np.minimum(smallest, np.where(circuit.mask, circuit.n_edges, np.inf), out=smallest)
    first = np.lexsort((-strength, smallest))[:MAX_EDGES]
    return first[np.argsort(-strength[first], kind="stable")]


def _run(run: ViewRun, name: str, edges: NDArray[np.intp], arrays: _Arrays) -> dict[str, Any]:
    for part in ("mean", "low", "high"):
        if (values := getattr(run, part)) is not None:
            arrays.add(f"{name}.{part}", "f4", values[edges])
    if run.unstable is not None:
        arrays.add(f"{name}.unstable", "bits", run.unstable[edges])
    for part in ("full", "empty"):
        if (values := getattr(run, part)) is not None:
            arrays.add(f"{name}.{part}", "f4", values[:MAX_PROMPTS])
    attention = run.attention
    if attention is not None:
        for place, values in enumerate(attention.values):
            arrays.add(f"{name}.pattern{place}", "u1", values)
    return {
        "name": run.name,
        "scored": bool(run.mean.any()),
        "definition": run.definition,
        "facts": dict(run.facts),
        "examples": 0 if run.full is None else len(run.full),
        "prompts": [asdict(prompt) for prompt in run.prompts[:MAX_PROMPTS]],
        "patterns": None if attention is None else {"examples": attention.examples, "heads": attention.heads},
    }


def _row(row: ViewRow, name: str, edges: NDArray[np.intp], arrays: _Arrays) -> dict[str, Any]:
    arrays.add(f"{name}.masks", "bits", np.stack([circuit.mask[edges] for circuit in row.circuits]))
    if row.metric is not None:
        arrays.add(f"{name}.metric", "f4", row.metric[:, :MAX_PROMPTS])
    if row.value is not None:
        arrays.add(f"{name}.value", "f4", row.value[edges])
    return {
        "run": row.run,
        "benchmark": row.measure,
        "method": row.method,
        "parameters": row.parameters,
        "better": row.better,
        "area": row.area,
        "interval": row.interval,
        "sizes": [asdict(size) for size in row.sizes],
    }


class _Arrays:
    """Packs arrays into one block, equal ones only once, and records their positions."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.places: dict[str, dict[str, Any]] = {}
        self._at: dict[bytes, int] = {}
        self._end = 0

    def add(self, name: str, kind: str, values: NDArray[Any]) -> None:
        packed = _PACKERS[kind](values)
        if packed not in self._at:
            self._at[packed] = self._end
            self.parts.append(packed)
            self._end += len(packed)
        self.places[name] = {"kind": kind, "shape": values.shape, "at": self._at[packed]}


def _floats(values: NDArray[Any]) -> bytes:
    largest = np.finfo(np.float32).max / 2
    bits = np.ascontiguousarray(np.clip(values, -largest, largest), "<f4").ravel().view("<u4")
    dropped = 23 - MANTISSA
    # Adding half of the dropped bits rounds instead of truncating.
    rounded = (bits + np.uint32(1 << (dropped - 1))) >> np.uint32(dropped) << np.uint32(dropped)
    return rounded.astype("<u4").view(np.uint8).reshape(prod(values.shape), 4).T.tobytes()


_PACKERS = {
    "f4": _floats,
    "u1": lambda values: np.ascontiguousarray(values, np.uint8).tobytes(),
    "u2": lambda values: np.ascontiguousarray(values, "<u2").tobytes(),
    "u4": lambda values: np.ascontiguousarray(values, "<u4").tobytes(),
    "bits": lambda values: np.packbits(values, axis=-1).tobytes(),
}


def _assets(suffix: str) -> list[str]:
    names = (one.name for one in files(__package__).joinpath("assets").iterdir())
    return sorted(name for name in names if name.endswith(suffix))


def _module(name: str) -> str:
    return "data:text/javascript;base64," + base64.b64encode(_asset(name).encode()).decode()


def _asset(name: str) -> str:
    return files(__package__).joinpath("assets").joinpath(name).read_text("utf-8")


def _escaped(words: str) -> str:
    # File names may have bytes that are not valid text.
    return html.escape(words.encode("utf-8", "replace").decode(), quote=False)
