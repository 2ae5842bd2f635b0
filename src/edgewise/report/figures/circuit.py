"""A drawing of the exported circuit: layers as rows, heads and MLPs as cells, the input below and the logits above."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from ...core.circuit import Circuit
from ...evaluate import Measure
from ...graph import Graph
from ..edge_kinds import COLOURS, KINDS, edge_kinds
from ..findings import TELLING, Findings
from ..formatting import format_number, shorten, with_minus_signs
from .sheet import FAINT, INK, SMALL, Sheet, lines_of, share_words, text_width

FloatArray = NDArray[np.float64]
# More lines hide each other.
MOST = 150
# In inches: the pitch of cells and of rows, the sizes of a panel, the names of layers, what stands above and below.
COLUMN, ROW, LARGEST, LABELS, ABOVE, LEGEND, GAP = 0.46, 0.62, (6.4, 12.0), 0.5, 0.48, 0.28, 0.4
# The font sizes of what stands in cells: the largest that fits is taken.
FONTS = (6.5, 6.0, 5.5, 5.0, 4.5)
DASHED = (0, (2.5, 1.2))
# Where at the bottom of a head's cell its edges enter, as a share of its width.
ASIDE = {"q": -0.3, "k": 0.0, "v": 0.3}
# [step] of a way from 0 to 1.
STEPS = np.linspace(0, 1, 24)


@dataclass(frozen=True)
class Labels:
    """[node] what stands in every cell, and its font size."""

    names: tuple[str, ...]
    font: float


@dataclass(frozen=True, eq=False)
class Places:
    """Where the cells of a graph are, in inches: [node] their middles, and how wide and how high they are."""

    graph: Graph
    x: FloatArray
    y: FloatArray
    widths: FloatArray
    height: float
    size: tuple[float, float]

    @classmethod
    def of(cls, graph: Graph) -> Places:
        """The MLP of a layer stands to the right of its heads, and a little higher, since it reads them."""
        heads, layers = graph.n_heads, graph.n_layers
        column = min(COLUMN, (LARGEST[0] - LABELS) / (heads + 1.3))
        row = min(ROW if layers > 3 else 1.3 * ROW, LARGEST[1] / (layers + 1.3))
        width, height = max(LABELS + column * (heads + 1.3), 2.6), row * (layers + 1.75)
        column = (width - LABELS) / (heads + 1.3)
        x, y, widths = np.empty((3, graph.n_nodes))
        ends = [0, graph.n_nodes - 1]
        x[ends], y[ends] = LABELS + column * heads / 2, (0.4 * row, height - 0.35 * row)
        widths[:] = 0.84 * column
        widths[ends] = min(max(0.6, 2 * column), column * (heads + 1))
        for layer in range(layers):
            first, mlp = graph.attention_sources(layer), graph.mlp_source(layer)
            x[first:mlp] = LABELS + column * (np.arange(heads) + 0.5)
            x[mlp] = LABELS + column * (heads + 0.8)
            y[first:mlp], y[mlp] = row * (layer + 1.25), row * (layer + 1.25 + 0.4)
        return cls(graph, x, y, widths, 0.26 * row, (width, height))

    @cached_property
    def labels(self) -> Labels | None:
        """The names of all nodes in the largest font that fits into their cells, else heads by their number; None if
        that doesn't fit either."""
        whole = self.graph.node_names
        for names in (whole, tuple(name.partition(".h")[2] or name.rstrip("0123456789") for name in whole)):
            for font in FONTS:
                wide = np.array([text_width(name, font) for name in names])
                if font / 72 <= 0.95 * self.height and (wide <= self.widths).all():
                    return Labels(names, font)
        return None

    def boxes(self, nodes: NDArray[np.bool_]) -> FloatArray:
        """[node, corner, xy] the cells of some nodes."""
        corners = np.array([(-1, -1), (1, -1), (1, 1), (-1, 1)]) / 2
        sizes = np.stack([self.widths, np.full_like(self.widths, self.height)], axis=1)
        return (np.stack([self.x, self.y], axis=1)[:, None] + corners * sizes[:, None])[nodes]

    def ways(self, edges: NDArray[np.intp], kinds: list[str]) -> FloatArray:
        """[edge, step, xy] curves from the top of a cell to the bottom of another: q at its left, k in the middle, v
        at its right, and otherwise a little to the side that they come from."""
        source, head = self.graph.edge_source[edges], self.graph.edge_head[edges]
        lean = 0.45 * np.clip((self.x[head] - self.x[source]) / (self.size[0] / 2), -1, 1)
        aside = np.array([ASIDE.get(kind, np.nan) for kind in kinds])
        aside = np.where(np.isnan(aside), -lean, aside)
        start = np.stack([self.x[source] + lean * self.widths[source], self.y[source] + self.height / 2], axis=1)
        end = np.stack([self.x[head] + aside * self.widths[head], self.y[head] - self.height / 2], axis=1)
        rise = np.stack([np.zeros(len(edges)), 0.5 * (end - start)[:, 1]], axis=1)
        t = STEPS[:, None]
        points = [one[:, None] for one in (start, start + rise, end - rise, end)]
        weights = [(1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t**2 * (1 - t), t**3]
        return sum(weight * point for weight, point in zip(weights, points, strict=True))  # type: ignore[return-value]


def circuit_figure(found: Findings) -> Figure:
    """A panel for each metric, beside each other."""
    shown = found.result.measures
    places = Places.of(found.result.run.graph)
    width, height = places.size
    words = {b: lines_of(_words(found, b), SMALL, width) for b in shown}
    above = ABOVE + 0.13 * (max(map(len, words.values())) - 1)
    whole = max(len(shown) * width + (len(shown) - 1) * GAP, 5.4)
    sheet = Sheet.make(whole, above + height + LEGEND, found.title, _caption(found))
    for at, measure in enumerate(shown):
        left = at * (width + GAP)
        sheet.heading(left, 0, measure.name, shorten(found.result.exported(measure).name))
        sheet.words(left, 0.2, "\n".join(words[measure]), size=SMALL, color=FAINT)
        axis = sheet.axes(left, above, width, height)
        axis.set_xlim(0, width)
        axis.set_ylim(0, height)
        axis.set_axis_off()
        _draw(axis, places, _circuit(found, measure), found.statistics.mean)
    handles = [Line2D([], [], color=colour, linewidth=2, label=f"into {kind}") for kind, colour in COLOURS.items()]
    handles += [
        Line2D([], [], color=FAINT, linewidth=1.5, label="positive"),
        Line2D([], [], color=FAINT, linewidth=1.5, linestyle=DASHED, label="negative"),
    ]
    sheet.legend(0, above + height + 0.1, handles, len(handles), handlelength=2.2, columnspacing=1.2)
    return sheet.figure


def _circuit(found: Findings, measure: Measure) -> Circuit:
    row, size = found.telling(measure)
    return found.circuits[measure, row.name][size]


def strongest(circuit: Circuit, score: FloatArray) -> NDArray[np.intp]:
    """The edges of a circuit that are drawn, the weakest first, so that the strongest lie on top."""
    edges = np.flatnonzero(circuit.mask)
    return edges[np.argsort(-np.abs(score[edges]), kind="stable")][:MOST][::-1]


def _draw(axis: Axes, places: Places, circuit: Circuit, score: FloatArray) -> None:
    graph, edges = circuit.graph, strongest(circuit, score)
    kinds = [KINDS[kind] for kind in edge_kinds(graph)[edges]]
    size = np.abs(score[edges])
    largest = float(size.max(initial=0.0)) or 1.0
    axis.add_collection(
        LineCollection(
            list(places.ways(edges, kinds)), colors=[COLOURS[kind] for kind in kinds], alpha=0.75, zorder=2,
            linewidths=0.45 + 2.8 * np.sqrt(size / largest), capstyle="butt",
            linestyles=[DASHED if one < 0 else "-" for one in score[edges].tolist()],
        ),
        autolim=False,
    )  # fmt: skip
    inside, seen = circuit.nodes, np.zeros(graph.n_nodes, bool)
    seen[graph.edge_source[edges]] = seen[graph.edge_head[edges]] = True
    for nodes, face, edge, order in (
        (~inside, "#f6f6f6", "#e2e2e2", 1), (inside & ~seen, "#e6e6e6", "#a0a0a0", 1), (seen, "white", INK, 3),
    ):  # fmt: skip
        look: dict[str, Any] = {"facecolors": face, "edgecolors": edge, "linewidths": 0.6, "zorder": order}
        axis.add_collection(PolyCollection(list(places.boxes(nodes)), **look), autolim=False)
    seen[[0, -1]] = True
    _name(axis, places, np.flatnonzero(seen))


def _name(axis: Axes, places: Places, nodes: NDArray[np.intp]) -> None:
    """The names of cells, if they can be read, and of layers."""
    graph, labels = places.graph, places.labels
    look: dict[str, Any] = {"va": "center_baseline", "zorder": 4}
    if labels is not None:
        for node in nodes.tolist():
            axis.text(places.x[node], places.y[node], labels.names[node], size=labels.font, ha="center", **look)
    every = -(-graph.n_layers // 40)
    for layer in range(0, graph.n_layers, every):
        y = places.y[graph.attention_sources(layer)]
        axis.text(0, y, f"layer {layer}", size=SMALL - 1, color=FAINT, ha="left", **look)


def _words(found: Findings, measure: Measure) -> str:
    """What is seen of one metric's circuit."""
    circuit, (row, size) = _circuit(found, measure), found.telling(measure)
    asked, faithfulness = share_words(row.curve.shares[size]), format_number(row.curve.faithfulness[size], digits=2)
    return (
        f"{asked} of the edges asked for, {circuit.n_edges:,} of {circuit.graph.n_edges:,} in the circuit; "
        f"faithfulness {with_minus_signs(faithfulness)}"
    )


def _caption(found: Findings) -> str:
    circuits = [_circuit(found, measure) for measure in found.result.measures]
    some = ""
    if max(circuit.n_edges for circuit in circuits) > MOST:
        some = f" Only the {MOST} strongest edges are drawn; grey cells have weaker ones."
    return (
        f"The exported circuit at {TELLING}. An edge "
        "leaves the top of a cell, and enters a head's q, k or v from left to right at its bottom; its width goes by "
        f"the mean score on the training examples.{some} Pale cells have no edge in the circuit."
    )
