"""Figures: every one is drawn for every kind of run, with nothing on top of anything else, of what was found."""

from __future__ import annotations

import warnings
from dataclasses import replace
from itertools import combinations
from xml.etree import ElementTree

import numpy as np
import pytest
import test_words
from conftest import build, random_task
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.text import Text
from PIL import Image

from edgewise import CMD, CPR, Circuit, EdgeScores, Graph, Settings, discover, wrap_model, write_result
from edgewise.core.statistics import EdgeStatistics
from edgewise.evaluate import Curve, compare, faithfulness_intervals, size_to_edges
from edgewise.recipes import Outcome, Recipe
from edgewise.recipes.recipe import paper_recipes
from edgewise.report import edge_kinds, findings
from edgewise.report.figures import FIGURES, circuit, drawing, rendered, write_figures
from edgewise.report.figures.agreement import _overlaps
from edgewise.report.figures.curves import SCALES
from edgewise.report.figures.scores import DECADES
from edgewise.report.figures.study import study_figure
from edgewise.report.findings import Findings
from edgewise.select.selection import Selection, Status

SIZES = (0.001, 0.01, 0.05, 0.2, 0.5, 1.0)
METHODS = ("Greedy", "ILP", "Bootstrapping", "ILP + Bootstrapping + PNR", "Portfolio")
LONGEST = "W" * 200


@pytest.fixture(scope="module")
def small():
    """The smallest run there is, with a portfolio and a tuned recipe."""
    model, train, test = wrap_model(build("gpt2"), name="tiny"), random_task(6), random_task(5, seed=1)
    settings, some = Settings(sizes=(0.05, 0.3, 1.0)), paper_recipes()
    return discover(model, train, test, settings, {b: some[b][:2] for b in (CMD, CPR)}, validation=random_task(4, 2),
                    tune_among={b: some[b][:2] for b in (CMD, CPR)})  # fmt: skip


@pytest.fixture(scope="module")
def written(small, tmp_path_factory):
    folder = tmp_path_factory.mktemp("figures") / "r"
    write_result(small, folder)
    return folder


def made(
    small, graph=None, names=METHODS, measures=(CMD, CPR), sizes=SIZES, examples=12, mean=None, seed=0, far=1, **run
) -> Findings:
    """What a run of some shape could have found."""
    rng, graph = np.random.default_rng(seed), graph or Graph(3, 4, 8)
    count = graph.n_edges
    is_any, mean = mean is None, np.full(count, mean)
    mean = rng.standard_t(1.3, count) * 1e-3 if is_any else mean
    half = 0.2 * np.abs(mean) + (np.median(np.abs(mean)) if is_any else 0.1)
    kept = np.abs(mean) > half
    known = EdgeStatistics(graph, mean, mean - half, mean + 2 * half, kept, ~kept, np.where(kept, mean, 0))
    full, empty = rng.normal(4, 0.5, examples), rng.normal(0, 0.5, examples)
    asked = tuple(size_to_edges(size, count) for size in sizes)
    rows, scores = [], EdgeScores(graph, mean[None])
    for measure in measures:
        for number, name in enumerate(names):
            order = np.argsort(-np.abs(mean) * np.exp(rng.normal(0, 0.5, count)))
            ours = tuple(Circuit(graph, np.isin(np.arange(count), order[:few])).prune() for few in asked)
            shares = np.array(sizes)[:, None] ** (0.2 / (1 + number % 3))
            values = empty + shares * (full - empty) + far * rng.normal(0, 0.2, (len(sizes), examples))
            curve = Curve(tuple(sizes), asked, tuple(one.n_edges for one in ours), values, full, empty)
            selections = tuple(
                Selection(one, "ilp", Status.OPTIMAL, few, 0.0, 0.0, 0.0) for one, few in zip(ours, asked, strict=True)
            )
            rows.append(Outcome(measure, Recipe(alias=name), selections, curve))
    info = replace(small.run, graph=graph, **run)
    result = replace(small, run=info, outcomes=tuple(rows), statistics=known, load_scores=lambda: scores)
    return Findings(result)


ONE = {"measures": (CMD,), "names": METHODS[:2]}
KINDS = {
    "usual": {},
    "one metric, one example": {"measures": (CPR,), "examples": 1},
    "one method": ONE | {"names": ("Greedy",)},
    "no greedy, parallel": {"names": ("mine", "yours"), "graph": Graph(2, 2, 4, parallel=True)},
    "tiny": ONE | {"graph": Graph(1, 1, 1), "sizes": (0, 0.1, 0.5, 1.0)},
    "no edge asked": ONE | {"graph": Graph(1, 1, 1), "sizes": (0, 0.01)},
    "large": ONE | {"graph": Graph(30, 9, 8)},
    "broad": ONE | {"graph": Graph(2, 48, 8)},
    "deep": ONE | {"graph": Graph(90, 2, 8)},
    "all scores 0": ONE | {"mean": 0.0},
    "scores as good as 0": ONE | {"mean": -5e-324},
    "huge scores": ONE | {"mean": 1e100},
    "huge faithfulness": ONE | {"far": 1e305},
    "long names": ONE | {"names": (LONGEST, LONGEST + "x"), "model": LONGEST, "task": "w " * 200},
    "strange names": ONE | {"names": ("_hidden", "$x_1$", r"\frac{1}", "two\nlines", "\x1b[31m"), "model": "$a_b$"},
    "many methods": {"names": [f"method {number}" for number in range(60)], "measures": (CMD,)},
}


def clash(boxes: np.ndarray, others: np.ndarray) -> tuple[int, int] | None:
    """The first two boxes [xy01] that overlap by more than a pixel; a box isn't compared with itself."""
    if not len(boxes) or not len(others):
        return None
    begin, end = np.maximum(boxes[:, None, :2], others[:, :2]), np.minimum(boxes[:, None, 2:], others[:, 2:])
    found = np.argwhere((end - begin > 1).all(-1))
    if boxes is others:
        found = found[found[:, 0] < found[:, 1]]
    return tuple(found[0]) if len(found) else None


def check_layout(figure) -> None:
    """Nothing is cut off, no text lies on another one, no legend on what is drawn."""
    FigureCanvasAgg(figure)
    figure.set_dpi(160)
    figure.draw_without_rendering()
    texts = [text for text in figure.findobj(Text) if text.get_text().strip() and text.get_visible()]
    places, legends, axes = (
        np.array([one.get_window_extent().extents for one in some]) for some in (texts, figure.legends, figure.axes)
    )
    words, (width, height) = [text.get_text() for text in texts], figure.bbox.size
    for boxes in (places, legends) if len(legends) else (places,):
        outside = (boxes[:, :2] < 0).any(1) | (boxes[:, 2] > width) | (boxes[:, 3] > height)
        assert not outside.any(), f"{outside.argmax()} is cut off: {words[outside.argmax()]!r}"
    both = clash(places, places)
    assert both is None, f"{[words[one] for one in both]} overlap"
    assert clash(legends, axes) is None, "a legend lies on curves"
    assert clash(axes, axes) is None, "panels overlap"


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_lies_on_top_of_anything_else_in_any_figure_of_any_run(small, kind):
    found = made(small, **KINDS[kind])
    with drawing():
        for name, make in FIGURES.items():
            figure = make(found)
            try:
                check_layout(figure)
            except AssertionError as error:
                raise AssertionError(f"{name}: {error}") from None


def test_a_studys_figure_has_nothing_on_top_of_anything_else():
    with drawing():
        for name in ("ioi", "$x_1$", "w" * 300):
            check_layout(study_figure(test_words.study(name)))


def test_every_figure_is_written_whole_and_the_same_again(written, tmp_path):
    """As `edgewise report` does."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        paths = write_figures(tmp_path / "again", Findings.read(written))
    assert [path.name for path in paths] == [f"{name}.{kind}" for name in FIGURES for kind in ("png", "svg")]
    assert sorted(path.name for path in (written / "figures").iterdir()) == sorted(path.name for path in paths)
    for path in paths:
        assert path.read_bytes() == (written / "figures" / path.name).read_bytes()
        if path.suffix == ".png":
            with Image.open(path) as image:
                image.verify()
                assert np.allclose(image.info["dpi"], 160, atol=0.1) and min(image.size) > 400
        else:
            assert ElementTree.parse(path).getroot().tag.endswith("svg")


def test_a_users_settings_of_matplotlib_change_nothing(small, tmp_path):
    import matplotlib

    found = made(small, names=METHODS[:1])
    with drawing():
        expected = rendered(FIGURES["scores"](found), "svg")
    with matplotlib.rc_context({"font.size": 30, "axes.grid": True, "font.family": "monospace"}):
        with drawing():
            assert rendered(FIGURES["scores"](found), "svg") == expected
        assert matplotlib.rcParams["font.size"] == 30


def test_names_are_drawn_as_they_are(small):
    """Text in an SVG is drawn as paths, behind a comment that says what it is."""
    names = ["_hidden", "$x_1$", r"\frac{1}", "plain"]
    found = made(small, names=names, model="$a_b$", task="_t")
    with drawing():
        figures = {name: make(found) for name, make in FIGURES.items()}
        svg = {name: rendered(figure, "svg").decode() for name, figure in figures.items()}
    for figure in figures.values():
        typeset = [text.get_text() for text in figure.findobj(Text) if text.get_parse_math()]
        assert not [words for words in typeset if "$" in words or "\\" in words]
    for figure in svg.values():
        assert "<!-- $a_b$  ·  _t  ·" in figure
    for name in names:
        assert f"<!-- {name}  0." in svg["faithfulness"] and f"<!-- {name}  " in svg["agreement"]
        assert f"<!-- {name} -->" in svg["differences"] or name == found.reference(CMD).name
    assert "a0.h1-&gt;" in svg["intervals"] or "a0.h1->" in svg["intervals"]


def test_names_that_steer_terminals_or_never_end_are_drawn(small, capfd):
    found = made(small, names=test_words.NAMES[:12], measures=(CMD,), model="\n" * 99, task="名前" * 9999)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with drawing():
            for name in ("faithfulness", "differences", "agreement"):
                assert len(rendered(FIGURES[name](found), "png")) > 5000
    assert capfd.readouterr() == ("", "")


def test_curves_are_drawn_on_a_linear_and_a_logarithmic_share_without_sizes_that_ask_for_no_edge(small):
    found = made(small)
    with drawing():
        figure = FIGURES["faithfulness"](found)
    assert found.result.rows[0].curve.asked[0] == 0
    assert [axis.get_xscale() for axis in figure.axes] == [*SCALES, *SCALES]
    for axis, measure in zip(figure.axes, (CMD, CMD, CPR, CPR), strict=True):
        curves = [line for line in axis.lines if len(line.get_xdata()) == len(SIZES) - 1]
        assert all(tuple(line.get_xdata()) == SIZES[1:] for line in curves)
        heights = [line.get_ydata() for line in curves]
        for row, drawn in zip(found.rows(measure), heights, strict=True):
            np.testing.assert_allclose(drawn, row.curve.faithfulness[1:])
        best, (area,) = found.result.best(measure).curve, axis.collections
        ys = area.get_paths()[0].vertices[:, 1]
        if axis.get_xscale() == "linear":  # the area that is CMD or CPR, between the curve and 1 or 0
            assert {float(1 if measure == CMD else 0)} < set(ys.tolist()) and np.isin(best.faithfulness[1:], ys).all()
        else:
            ends = faithfulness_intervals(best.values, best.full, best.empty)[1:]
            assert all(np.isclose(ys, end).any() for one in ends for end in (one.low, one.high))


def test_differences_are_paired_and_sorted_and_say_what_is_sure(small):
    found = made(small, seed=3)
    with drawing():
        figure = FIGURES["differences"](found)
    for axis, measure in zip(figure.axes, (CMD, CPR), strict=True):
        curves = {row.name: row.curve for row in found.result.of(measure)}
        expected = {name: compare(curves[name], curves["Greedy"], measure) for name in METHODS[1:]}
        order = sorted(METHODS[1:], key=lambda name: measure.better * expected[name].difference, reverse=True)
        dots = [line for line in axis.lines if len(line.get_xdata()) == 1]
        names = [text.get_text() for text in axis.texts if text.get_text() in METHODS]
        assert names == order
        for name, dot in zip(order, dots, strict=True):
            less = expected[name]
            assert dot.get_xdata()[0] == less.difference
            assert (dot.get_markerfacecolor() == "white") is (less.verdict == "not significant")
        low, high = axis.get_xlim()
        assert low < 0 < high
        (arrow,) = [text for text in axis.texts if "better" in text.get_text()]
        assert np.sign(arrow.get_position()[0]) == measure.better
    verdicts = {one.verdict for both in found.differences.values() for one in both.values()}
    assert verdicts >= {"better", "not significant"}


def test_without_greedy_methods_are_compared_with_the_best(small):
    found = made(small, names=("mine", "yours"))
    for measure in (CMD, CPR):
        assert found.reference(measure) is found.result.best(measure)
        (less,) = found.differences[measure].values()
        assert measure.better * less.difference <= 0


def test_the_exported_method_is_the_one_whose_circuits_the_folder_has(small, written):
    """Chosen beforehand, or else the best: as `Discovery.exported` has it."""
    found = Findings.read(written)
    parts = {"portfolio": small.outcomes, "tuned": [o for o in small.outcomes if not o.choices],
             "best": [o for o in small.outcomes if not o.chosen_on]}  # fmt: skip
    for outcomes in parts.values():
        one = replace(small, outcomes=tuple(outcomes))
        names = [(o.measure, o.recipe.name) for o in outcomes]
        rows = tuple(row for row in found.result.outcomes if (row.measure, row.name) in names)
        mine = replace(found, result=replace(found.result, outcomes=rows))
        for b in (CMD, CPR):
            assert mine.result.exported(b).name == one.exported(b).recipe.name
    for b in (CMD, CPR):
        row = found.result.exported(b)
        share = row.curve.shares[row.curve.default_size]
        path = written / "circuits" / f"{b.name.lower()}-{share:g}.npz"
        assert Circuit.load(path) == found.circuits[b, row.name][row.curve.default_size]


@pytest.mark.parametrize(
    "heights, expected",
    [([0, 0.95, 0.99, 1, 1], 1), ([0, 0.5, 0.89, 0.91, 1], 3), ([0, 0, 0, 0, 1], 2), ([0, -1, 0, 2, 1], 3)],
)
def test_the_size_to_look_at_is_the_smallest_that_is_faithful_or_5_percent(small, heights, expected):
    found = made(small, names=("Greedy",), measures=(CMD,), sizes=(0.02, 0.04, 0.05, 0.5, 1.0), graph=Graph(4, 4, 8))
    (row,) = found.result.rows
    full, empty = np.full(12, 2.0), np.full(12, 1.0)
    values = 1 + np.repeat(np.array(heights, float)[:, None], 12, axis=1)
    kept = tuple(max(1, number) for number in row.curve.asked)
    curve = replace(row.curve, kept=kept, values=values, full=full, empty=empty)
    mine = replace(found, result=replace(found.result, rows=(replace(row, curve=curve),)))
    assert mine.result.exported(CMD).curve.default_size == expected


def test_what_an_edge_leads_into_is_what_its_name_says():
    for graph in (Graph(1, 1, 1), Graph(3, 4, 8), Graph(2, 3, 6, parallel=True)):
        for name, kind in zip(graph.edge_names, edge_kinds.edge_kinds(graph), strict=True):
            head = name.split("->")[1]
            expected = head[-2] if head.endswith(">") else "logits" if head == "logits" else "MLP"
            assert edge_kinds.KINDS[kind] == expected


def test_the_circuit_is_drawn_by_its_strongest_edges_from_below_to_above(small):
    found = made(small, graph=Graph(5, 6, 8), measures=(CMD,), sizes=(0.3, 1.0), names=("Greedy",))
    (mask,) = (one.mask for one in found.circuits[CMD, "Greedy"][:1])
    assert mask.sum() > circuit.MOST
    mean, graph = found.statistics.mean, found.statistics.graph
    with drawing():
        figure = FIGURES["circuit"](found)
    (axis,) = figure.axes
    (lines,) = [one for one in axis.collections if isinstance(one, LineCollection)]
    ways, widths = lines.get_segments(), lines.get_linewidths()
    edges = circuit.strongest(Circuit(graph, mask), mean)
    assert len(ways) == circuit.MOST == len(edges) and mask[edges].all()
    assert np.abs(mean[edges]).min() >= np.abs(mean[np.setdiff1d(np.flatnonzero(mask), edges)]).max()
    assert (np.diff(np.abs(mean[edges])) >= 0).all() and (np.diff(widths) >= 0).all()
    assert all((np.diff(way[:, 1]) > 0).all() for way in ways)
    colours = [tuple(np.round(colour[:3], 3)) for colour in lines.get_colors()]
    pairs = set(zip(colours, edge_kinds.edge_kinds(graph)[edges].tolist(), strict=True))
    assert len(pairs) == len({colour for colour, _ in pairs}) == len({kind for _, kind in pairs}) > 3
    dashed = [style[1] is not None for style in lines.get_linestyles()]
    assert dashed == (mean[edges] < 0).tolist()
    caption = " ".join(text.get_text().replace("\n", " ") for text in figure.texts)
    assert f"Only the {circuit.MOST} strongest edges" in caption and f"{mask.sum():,} of {graph.n_edges:,}" in caption


def test_cells_are_rows_of_layers_that_do_not_touch():
    for graph in (Graph(1, 1, 1), Graph(2, 4, 8), Graph(12, 12, 8), Graph(30, 9, 8), Graph(2, 48, 8)):
        places = circuit.Places.of(graph)
        boxes = places.boxes(np.ones(graph.n_nodes, bool))
        low, high = boxes.min(1), boxes.max(1)
        assert (low >= 0).all() and (high <= places.size).all()
        for one, other in combinations(range(graph.n_nodes), 2):
            assert (high[one] <= low[other]).any() or (high[other] <= low[one]).any()
        assert (places.y[graph.edge_source] < places.y[graph.edge_head]).all()


def test_scores_count_every_edge_once(small):
    found = made(small)
    mean, unstable = found.statistics.mean, found.statistics.sign_unstable
    with drawing():
        upper, lower = FIGURES["scores"](found).axes
    positive, positive_unsure, negative, negative_unsure = (patch.get_data().values.sum() for patch in upper.patches)
    assert np.abs(mean).min() > np.abs(mean).max() / 10**DECADES
    assert (positive, -negative) == ((mean > 0).sum(), (mean < 0).sum())
    assert positive_unsure - negative_unsure == unstable.sum()
    (shares,) = (patch.get_data().values for patch in lower.patches)
    assert shares.min() >= 0 and shares.max() <= 1 and shares.any()


def test_the_strongest_edges_have_their_intervals(small):
    found = made(small)
    unstable = np.random.default_rng(0).random(found.statistics.graph.n_edges) < 0.3
    known = replace(found.statistics, sign_unstable=unstable)
    found = replace(found, statistics=known)
    with drawing():
        means, relative = FIGURES["intervals"](found).axes
    top = sorted(range(len(known.mean)), key=lambda edge: -abs(known.mean[edge]))[:25]
    assert [text.get_text() for text in means.texts] == [known.graph.edge_names[edge] for edge in top]
    dots = [line for line in means.lines if len(line.get_xdata()) == 1]
    assert [dot.get_xdata()[0] for dot in dots] == known.mean[top].tolist()
    hollow = [dot.get_markerfacecolor() == "white" for dot in dots]
    assert hollow == known.sign_unstable[top].tolist() and any(hollow) and not all(hollow)
    ends = means.collections[-1].get_segments()
    np.testing.assert_allclose([end[:, 0] for end in ends], np.stack([known.low[top], known.high[top]], axis=1))
    for edge, end in zip(top, relative.collections[-1].get_segments(), strict=True):
        ratios = sorted(one[edge] / known.mean[edge] - 1 for one in (known.low, known.high))
        np.testing.assert_allclose(end[:, 0], ratios)


def test_agreement_is_the_overlap_of_sets(small):
    found = made(small, measures=(CMD,), graph=Graph(4, 6, 8))
    rows, size = found.rows(CMD), found.result.exported(CMD).curve.default_size
    sets = [[set(one.edges) for one in found.circuits[CMD, row.name]] for row in rows]
    seen = _overlaps(found, CMD)
    for a, b in combinations(range(len(rows)), 2):
        by_size = [len(x & y) / len(x | y) if x | y else None for x, y in zip(sets[a], sets[b], strict=True)]
        assert seen[b, a] == by_size[size]
        assert seen[a, b] == pytest.approx(np.mean([one for one in by_size[:-1] if one is not None]))
    assert (np.diag(seen) == 1).all() and seen[1, 0] < 1


def test_of_very_many_methods_the_best_are_shown_and_the_rest_is_said(small):
    found = made(small, **KINDS["many methods"] | {"names": [*KINDS["many methods"]["names"], "Greedy"]})
    areas = [row.area for row in found.rows(CMD)]
    assert areas == sorted(areas) and findings.MOST_METHODS <= len(areas) <= findings.MOST_METHODS + 2
    assert "Greedy" in [row.name for row in found.rows(CMD)]
    assert f"Of 61 methods the best {findings.MOST_METHODS}" in findings.left_out(found)
