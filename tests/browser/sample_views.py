"""Views that are made up, and what their pages must say: computed from the view, without the page's own code.

Numbers in a page have 12 bits of mantissa. Scores and metrics here need fewer, so what a page says is exact.
"""

from __future__ import annotations

from dataclasses import replace
from decimal import ROUND_HALF_UP, Decimal

import numpy as np

from edgewise import Circuit, Graph
from edgewise.evaluate import Attention
from edgewise.graph import BaseGraph
from edgewise.recipes.run_info import Prompt
from edgewise.report.viewer.view import View, ViewRow, ViewRun, ViewSize

SHARES = (0.04, 0.1, 0.3, 1.0)
EXAMPLES, LENGTH = 6, 7
# The model and the empty circuit do alike there: nobody can say how faithful a circuit is.
UNDEFINED = 4
SEEN = (1, 3)
# Faithfulness of every row: some pass 0.9, at different sizes, one doesn't; one overshoots.
REACHED = {
    ("CMD", "Greedy"): (0.21, 0.55, 0.93, 1.0),
    ("CMD", "ILP"): (0.32, 0.915, 1.12, 1.0),
    ("CMD", "Learned"): (-0.07, 0.4, 0.71, 0.88),
    ("CPR", "Greedy"): (0.2, 0.5, 0.9, 1.0),
    ("CPR", "ILP"): (0.45, 0.8, 0.97, 1.0),
}
# What Python says of the size that reaches the goal; pages show it and compute nothing.
GOALS = {
    ("CMD", "Greedy"): ("within 0.1 of 1", 2),
    ("CMD", "ILP"): ("within 0.1 of 1", 1),
    ("CMD", "Learned"): ("within 0.1 of 1", None),
    ("CPR", "Greedy"): ("≥ 0.9", 2),
    ("CPR", "ILP"): ("≥ 0.9", 2),
}
WORDS = ("When", " Mary", " and", " John", " went", " to", " the")


def sample_view(graph: BaseGraph | None = None, seed: int = 0, name: str = "tiny · ioi") -> View:
    """Two metrics, three methods, four sizes, six examples, and attention on two of them; ILP at 10 % is shown."""
    graph = graph or Graph(4, 3, 16)
    draw = np.random.default_rng(seed)
    mean = _distinct(draw, graph) * np.where(draw.random(graph.n_edges) < 0.4, -1, 1)
    value = _distinct(draw, graph)
    spread = draw.integers(1, 200, graph.n_edges) / 512
    full, empty = draw.integers(100, 300, EXAMPLES) / 64, draw.integers(-60, 60, EXAMPLES) / 64
    full[UNDEFINED] = empty[UNDEFINED]
    run = ViewRun(
        name, {"model": "tiny", "task": "ioi", "faithfulness": "MIB's"}, mean, mean - spread, mean + spread,
        spread > np.abs(mean), full, empty, "mib", _prompts(), _attention(draw, graph),
    )  # fmt: skip
    rows = []
    for (measure, method), reached in REACHED.items():
        strength = value if method == "Learned" else np.abs(mean)
        if method == "ILP":
            strength = strength * draw.uniform(0.5, 1, graph.n_edges)
        counts = [max(1, round(share * graph.n_edges)) for share in SHARES]
        # Not every edge that was asked for is kept.
        kept = [count - (2 if method == "ILP" and count < graph.n_edges else 0) for count in counts]
        masks = [np.isin(np.arange(graph.n_edges), np.argsort(-strength, kind="stable")[:count]) for count in kept]
        sizes = tuple(
            ViewSize(share, asked, count, at, at - 0.04, at + 0.03)
            for share, asked, count, at in zip(SHARES, counts, kept, reached, strict=True)
        )
        area, better = (0.31, -1) if measure == "CMD" else (0.79, 1)
        metric = draw.integers(-100, 400, (len(SHARES), EXAMPLES)) / 64
        rows.append(ViewRow(
            0, measure, method, sizes, tuple(Circuit(graph, mask) for mask in masks), f"of {method}", better, area,
            (area - 0.05, area + 0.05), metric, value if method == "Learned" else None,
            *GOALS[measure, method],
        ))  # fmt: skip
    return View(name, graph, (run,), tuple(rows), 1, 1)


def _distinct(draw: np.random.Generator, graph: BaseGraph) -> np.ndarray:
    """[edge] strengths of which no two are alike, as few bits as that takes."""
    return (1 + draw.permutation(graph.n_edges)) / 512


def _prompts() -> tuple[Prompt, ...]:
    return tuple(
        Prompt(WORDS, (*WORDS[:at], f" Other{at}", *WORDS[at + 1 :]), f" right{at}", f" wrong{at}")
        for at in range(1, 1 + EXAMPLES)
    )


def _attention(draw: np.random.Generator, graph: BaseGraph) -> Attention:
    plain = graph.plain
    heads = tuple(plain.n_attention_sources(layer) + head for layer in range(1, plain.n_layers) for head in (0, 2))
    pairs = LENGTH * (LENGTH + 1) // 2
    values = tuple(draw.integers(0, 256, (2, len(heads), pairs), np.uint8) for _ in SEEN)
    return Attention(SEEN, (LENGTH,) * len(SEEN), heads, values)


def two_runs() -> View:
    """Two runs of the same methods, with scores and circuits of their own."""
    one, other = sample_view(name="first"), sample_view(seed=1, name="second")
    rows = (*one.rows, *(replace(row, run=1) for row in other.rows))
    return replace(one, title="first and second", runs=(*one.runs, *other.runs), rows=rows)


def circuit_alone(name: str = "mine") -> View:
    """The file of one circuit, which nobody evaluated."""
    whole = sample_view()
    row = replace(whole.rows[0], measure="", method=name, better=0, area=None, interval=None, metric=None)
    sizes = tuple(ViewSize(size.share, size.asked, size.kept) for size in row.sizes[1:2])
    run = ViewRun(name, {"file": f"{name}.json"}, whole.runs[0].mean)
    return View(name, whole.graph, (run,), (replace(row, sizes=sizes, circuits=row.circuits[1:2]),))


def mask_of(view: View, row: int, size: int) -> np.ndarray:
    """[edge] whether it is in a row's circuit."""
    return view.rows[row].circuits[size].mask


def strength_of(view: View, row: int) -> np.ndarray:
    """[edge] of what the row's circuits were chosen by."""
    value = view.rows[row].value
    return np.abs(view.runs[view.rows[row].run].mean if value is None else value)


def ranked(view: View, row: int, mask: np.ndarray) -> list[str]:
    """The names of edges, strongest first."""
    strength = strength_of(view, row)
    edges = sorted(np.flatnonzero(mask), key=lambda edge: -strength[edge])
    return [view.graph.edge_names[edge] for edge in edges]


def present(view: View, row: int, edge: int) -> int:
    """In how many sizes of a row an edge is."""
    return sum(bool(circuit.mask[edge]) for circuit in view.rows[row].circuits)


def letters(graph: Graph) -> np.ndarray:
    """[edge] what it ends in: q, k, v, MLP or logits."""
    ends = [name.partition("->")[2] for name in graph.edge_names]
    return np.array([end[-2] if end.endswith(">") else "logits" if end == "logits" else "MLP" for end in ends])


def faithfulness(view: View, row: int, size: int) -> np.ndarray:
    """[example] of a row's circuit; NaN where it is undefined."""
    run = view.runs[view.rows[row].run]
    span = run.full - run.empty
    known = np.abs(span) > 0.01 * abs(span.mean())
    return np.where(known, (view.rows[row].metric[size] - run.empty) / np.where(known, span, 1), np.nan)


def number(value: float, digits: int = 3) -> str:
    """A number to so many digits, halves away from zero, with a true minus."""
    if value == 0:
        return "0"
    exact = Decimal(float(value))
    short = exact.quantize(Decimal(1).scaleb(exact.adjusted() - digits + 1), ROUND_HALF_UP)
    if 1e-4 <= abs(value) < 1e5:
        words = f"{short:f}"
        words = words.rstrip("0").rstrip(".") if "." in words else words
    else:
        mantissa, _, power = f"{short:.{digits - 1}e}".partition("e")
        words = f"{mantissa}e{int(power):+d}"
    return words.replace("-", "\u2212")


def fixed(value: float) -> str:
    """A number to two decimals, halves away from zero, with a true minus and never -0.00."""
    words = str(Decimal(float(value)).quantize(Decimal("0.01"), ROUND_HALF_UP))
    return "0.00" if words == "-0.00" else words.replace("-", "\u2212")


def between(value: float, low: float, high: float, say=number) -> str:
    """A number with its interval."""
    return f"{say(value)} [{say(low)}, {say(high)}]"


def percent(share: float) -> str:
    """A share of the edges."""
    return f"{100 * share:.3g}\u00a0%"
