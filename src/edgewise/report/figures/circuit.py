"""A drawing of the chosen circuit: layers as rows, heads and MLPs as boxes, the input below and the logits above."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from ...core.circuit import Circuit
from ...evaluate import DEFAULT_SHARE
from ...graph import Graph
from ...recipes.discovery import Discovery
from ..circuit_summary import COLOURS, KINDS, edge_kinds
from ..formatting import format_number, format_percent, shorten, with_minus_signs
from ..overview import choices, run_title
from .style import FAINT, INK, SCREEN, Page, add_legend, format_share, new_figure, set_heading

FloatArray = NDArray[np.float64]
# Drawing more edges would hide most of them.
MAX_EDGES = 150
# In inches: a layer, the highest panel, and the names of layers at the left.
LAYER, MAX_HEIGHT, LABEL_WIDTH = 0.7, 12.0, 0.45
MIN_FONT_SIZE, MAX_FONT_SIZE = 4.5, 6.5
CHARACTER_WIDTH = 0.65 / 72  # in inches per point of the font size
DASHED = (0, (2.5, 1.2))
# Where edges enter the bottom of a head's box, in box widths from its middle.
ENTRY = {"q": -0.3, "k": 0.0, "v": 0.3}
# Between a box and an edge that passes it: beside it in columns (half the gap between two heads), above and below it in
# layers. Longer edges pass boxes that stand alone in their row at a larger distance.
GAP_X, GAP_Y, WIDER = 0.08, 0.04, 0.1


class NodeLayout:
    """Positions of a graph's nodes; x is in columns, y in layers.

    A layer's MLP is to the right of its heads and a little higher, because it reads them.

    x, y, width  [node] the middle and the width of each box; all have the same height
    panel        width and height of the drawing in inches
    x_limits     leave room for the names of layers at the left, and for edges that pass MLPs at the right
    """

    def __init__(self, graph: Graph, width: float = 5.0) -> None:
        n_heads, n_layers = graph.n_heads, graph.n_layers
        self.graph, self.height = graph, 0.26
        self.x, self.y = np.full(graph.n_nodes, (n_heads - 1) / 2), np.empty(graph.n_nodes)
        self.y[0], self.y[-1] = 0.0, n_layers + 0.85
        self.width = np.full(graph.n_nodes, 0.84)
        self.width[[0, -1]] = min(max(1.6, n_heads / 3), n_heads + 1)
        for layer in range(n_layers):
            first, mlp = graph.n_attention_sources(layer), graph.mlp_source_index(layer)
            self.x[first:mlp], self.y[first:mlp] = np.arange(n_heads), layer + 0.85
            self.x[mlp], self.y[mlp] = n_heads + 0.3, layer + 1.25
        self.panel = (width, min(LAYER * (n_layers + 1.4), MAX_HEIGHT))
        labels = LABEL_WIDTH / (self.panel[0] - LABEL_WIDTH) * (n_heads + 1.9)
        self.x_limits = min(-0.5, float((self.x - self.width / 2).min())) - labels, n_heads + 1.4

    def labels(self) -> tuple[tuple[str, ...], float]:
        """Return the label of each box and their font size: short labels if names don't fit, size 0 if none fits."""
        column = self.panel[0] / (self.x_limits[1] - self.x_limits[0])
        row = self.panel[1] / (self.graph.n_layers + 1.4)
        names = self.graph.node_names
        for labels in (names, tuple(name.partition(".h")[2] or name.rstrip("0123456789") for name in names)):
            lengths = np.array([len(label) for label in labels])
            largest = min(float((self.width * column / (lengths * CHARACTER_WIDTH)).min()), 72 * self.height * row)
            if largest >= MIN_FONT_SIZE:
                return labels, min(largest, MAX_FONT_SIZE)
        return names, 0.0

    def boxes(self, nodes: NDArray[np.bool_]) -> FloatArray:
        """Return the corners [node, corner, xy] of the boxes of the nodes in a mask."""
        corners = np.array([(-1, -1), (1, -1), (1, 1), (-1, 1)]) / 2
        size = np.stack([self.width, np.full_like(self.width, self.height)], axis=1)
        return (np.stack([self.x, self.y], axis=1)[:, None] + corners * size[:, None])[nodes]

    def paths(self, edges: NDArray[np.intp], kinds: list[str]) -> list[FloatArray]:
        """Return a smooth path [point, xy] per edge, from the top of the source to the bottom of the destination.

        Paths run beside the boxes of other nodes with edges, so that no edge seems to end in a box that it passes.
        """
        source, target = self.graph.edge_source[edges], self.graph.edge_target[edges]
        lean = 0.45 * np.clip((self.x[target] - self.x[source]) / (self.graph.n_heads / 2 + 1), -1, 1)
        entry = np.array([ENTRY.get(kind, np.nan) for kind in kinds])
        entry = np.where(np.isnan(entry), -lean, entry)
        start = np.stack([self.x[source] + lean * self.width[source], self.y[source] + self.height / 2], axis=1)
        end = np.stack([self.x[target] + entry * self.width[target], self.y[target] - self.height / 2], axis=1)
        nodes = np.unique(np.concatenate([source, target]))
        y = self.y[nodes]
        passed = [nodes[(y > low) & (y < high)] for low, high in zip(self.y[source], self.y[target], strict=True)]
        return [self._path(*ends) for ends in zip(start, end, passed, strict=True)]

    def _path(self, start: FloatArray, end: FloatArray, obstacles: NDArray[np.intp]) -> FloatArray:
        """Return a path [point, xy] that rises from `start` to `end` and passes beside the boxes of `obstacles`."""
        half_height, half_width = self.height / 2 + GAP_Y, self.width / 2
        centres = np.stack([self.x[obstacles], self.y[obstacles]], axis=1)
        limits = np.stack([half_width[obstacles] + GAP_X / 2, np.full(len(obstacles), half_height)], axis=1)
        detours: dict[float, float] = {}  # the y of a row of boxes -> the x at which to pass it
        while True:
            corners = [(y + side * half_height, x) for y, x in sorted(detours.items()) for side in (-1, 1)]
            points = np.array([start[::-1], *corners, end[::-1]])
            path = _rise_through(points[:, 0], points[:, 1])
            is_hit = (np.abs(path[:, None] - centres) < limits).all(-1).any(0)
            rows = set(centres[is_hit, 1].tolist()) - set(detours)
            if not rows:
                return path
            for y in rows:
                row = obstacles[centres[:, 1] == y]
                distance = GAP_X + WIDER * min(float(end[1] - start[1]), 5.0) * (len(row) == 1)
                outside = half_width[row] + distance
                sides = np.concatenate([self.x[row] + outside, self.x[row] - outside])
                is_free = (np.abs(sides[:, None] - self.x[row]) > half_width[row] + GAP_X / 2).all(1)
                sides = sides[is_free]
                detours[y] = float(sides[np.abs(sides - np.interp(y, path[:, 1], path[:, 0])).argmin()])


def _rise_through(y: FloatArray, x: FloatArray) -> FloatArray:
    """Return a smooth path [point, xy] through points of rising y; vertical at both ends, monotone between points."""
    slope = np.diff(x) / np.diff(y)
    before, after = slope[:-1], slope[1:]
    tangent = np.zeros(len(y))
    turns = before * after <= 0
    tangent[1:-1] = np.where(turns, 0.0, 2 * before * after / np.where(turns, 1.0, before + after))
    pieces = [np.linspace(low, high, max(24, int(40 * (high - low)))) for low, high in pairwise(y.tolist())]
    heights = np.unique(np.concatenate(pieces))
    piece = np.clip(np.searchsorted(y, heights, side="right") - 1, 0, len(y) - 2)
    length = np.diff(y)[piece]
    t = (heights - y[piece]) / length
    sides = x[piece] * (1 + 2 * t) * (1 - t) ** 2 + x[piece + 1] * t**2 * (3 - 2 * t)
    bends = length * (tangent[piece] * t * (1 - t) ** 2 - tangent[piece + 1] * t**2 * (1 - t))
    return np.stack([sides + bends, heights], axis=1)


def circuit_figure(discovery: Discovery, page: Page = SCREEN) -> Figure:
    """Draw the circuit of the chosen recipe of each measure, side by side, or below each other on a narrow page."""
    measures = discovery.measures
    chosen = {}
    for measure in measures:
        row = discovery.best(measure)
        chosen[measure] = row, row.circuit()
    n_columns = 1 if page.is_narrow else len(measures)
    layout = NodeLayout(discovery.run.graph.plain, page.width / n_columns - 0.1)
    sizes = "; ".join(f"{m.name}: {m.smallest_faithful} on {row.sized_on}" for m, (row, _) in chosen.items())
    limited = any(circuit.plain().n_edges > MAX_EDGES for _, circuit in chosen.values())
    caption = (
        f"Recipes: {choices(discovery)}. Sizes: {sizes}; else {format_percent(DEFAULT_SHARE)} % of the "
        f"{discovery.run.graph.units}. "
        "An edge leaves the top of a box and enters a head's q, k or v from "
        "left to right at its bottom; its width grows with the mean score on the training examples. "
        + f"Only the {MAX_EDGES} strongest edges are drawn; grey boxes have weaker ones. " * limited
        + "Pale boxes have no edge in the circuit."
    )
    height = layout.panel[1]
    n_rows = -(-len(measures) // n_columns)
    figure = new_figure((height + 0.6) * n_rows + 0.6, run_title(discovery), caption, page)
    (part,) = figure.subfigures(1, 1, squeeze=False)[0]  # a legend of the figure itself would cover the caption
    panels = part.subplots(n_rows, n_columns, squeeze=False).ravel()
    for axes, (measure, (row, circuit)) in zip(panels, chosen.items(), strict=True):
        place = row.default_size
        size = format_share(row.curve.shares[place])
        faithfulness = format_number(row.curve.faithfulness[place], digits=2)
        set_heading(axes, measure.name, shorten(row.name), page, 1 / n_columns)
        n_edges, units = f"{circuit.n_edges:,} of {circuit.graph.n_edges:,}", circuit.graph.units
        text = f"{n_edges} {units},\n" if page.is_paper else f"{size} of the {units} asked for, {n_edges} inside;\n"
        axes.annotate(
            f"{text}faithfulness {with_minus_signs(faithfulness)}", (0, 1), (0, -2), xycoords="axes fraction",
            textcoords="offset points", va="top", size=page.small, color=FAINT,
        )  # fmt: skip
        axes.set_xlim(layout.x_limits)
        axes.set_ylim(-0.3, layout.y[-1] + 0.3 + 0.4 * layout.panel[1] / height / LAYER)
        axes.set_axis_off()
        inside = np.where(circuit.mask, discovery.mean_scores, 0)
        draw_circuit(axes, layout, circuit.plain(), circuit.graph.plain_score(inside))
    handles = [Line2D([], [], color=colour, linewidth=2) for colour in COLOURS.values()]
    handles += [Line2D([], [], color=FAINT, linewidth=1.5, linestyle=style) for style in ("-", DASHED)]
    labels = [*(f"into {kind}" for kind in COLOURS), "positive", "negative"]
    add_legend(part, handles, labels, page, handlelength=2.2)
    return figure


def strongest_edges(circuit: Circuit, score: FloatArray) -> NDArray[np.intp]:
    """Return the edges to draw, the weakest first, so that the strongest lie on top."""
    edges = np.flatnonzero(circuit.mask)
    return edges[np.argsort(-np.abs(score[edges]), kind="stable")][:MAX_EDGES][::-1]


def draw_circuit(axes: Axes, layout: NodeLayout, circuit: Circuit, score: FloatArray) -> None:
    """Draw boxes for nodes and paths for the strongest edges; dashed ones have negative scores."""
    graph, edges = circuit.graph.plain, strongest_edges(circuit, score)
    kinds = [KINDS[kind] for kind in edge_kinds(graph)[edges]]
    strength = np.abs(score[edges])
    strength /= float(strength.max(initial=0.0)) or 1.0
    lines = LineCollection(
        layout.paths(edges, kinds), colors=[COLOURS[kind] for kind in kinds], alpha=0.75, zorder=2,
        linewidths=0.45 + 2.8 * np.sqrt(strength), capstyle="butt",
        linestyles=[DASHED if value < 0 else "-" for value in score[edges].tolist()],
    )  # fmt: skip
    axes.add_collection(lines, autolim=False)
    has_path = np.zeros(graph.n_nodes, bool)
    has_path[graph.edge_source[edges]] = has_path[graph.edge_target[edges]] = True
    groups = (
        (~circuit.node_mask, "#f6f6f6", "#e2e2e2", 1),
        (circuit.node_mask & ~has_path, "#e6e6e6", "#a0a0a0", 1),
        (has_path, "white", INK, 3),
    )
    for nodes, face, outline, order in groups:
        boxes = list(layout.boxes(nodes))
        boxes_drawn = PolyCollection(boxes, facecolors=face, edgecolors=outline, linewidths=0.6, zorder=order)
        axes.add_collection(boxes_drawn, autolim=False)
    has_path[[0, -1]] = True
    labels, font_size = layout.labels()
    for node in np.flatnonzero(has_path).tolist() if font_size else []:
        x, y = layout.x[node], layout.y[node]
        axes.text(x, y, labels[node], size=font_size, ha="center", va="center_baseline", zorder=4)
    for layer in range(0, graph.n_layers, -(-graph.n_layers // 40)):
        y = layout.y[graph.n_attention_sources(layer)]
        axes.text(layout.x_limits[0], y, f"layer {layer}", size=6, color=FAINT, va="center_baseline")
