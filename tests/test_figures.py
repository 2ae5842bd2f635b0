"""Figures: complete and readable for every kind of run, equal bytes for equal results, and the right numbers."""

from __future__ import annotations

import warnings
from dataclasses import replace
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest
import test_untrusted_text
from conftest import build, random_task
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.text import Text
from PIL import Image

from edgewise import CMD, CPR, Circuit, EdgeScores, Graph, Settings, discover, read_result, wrap_model, write_result
from edgewise.core.statistics import EdgeStatistics
from edgewise.evaluate import Curve, compare, faithfulness_intervals, size_to_edges
from edgewise.recipes import Outcome, Recipe
from edgewise.recipes.recipe import paper_recipes
from edgewise.report import overview
from edgewise.report.circuit_summary import KINDS, edge_kinds
from edgewise.report.figures import FIGURES, circuit, figure_settings, render, write_figures
from edgewise.report.figures.curves import study_figure
from edgewise.report.figures.dots import DECADES, score_bins
from edgewise.select.base import Selection, Status

SIZES = (0.001, 0.01, 0.05, 0.2, 0.5, 1.0)
RECIPES = ("Greedy", "ILP", "Bootstrapping", "ILP + Bootstrapping + PNR", "Portfolio")
LONG_NAME = "W" * 200
LARGE_GRAPHS = (Graph(30, 9, 8), Graph(2, 48, 8), Graph(90, 2, 8))


@pytest.fixture(scope="module")
def discovery():
    """The smallest run with a portfolio and a tuned recipe."""
    model, train, test = wrap_model(build("gpt2"), name="tiny"), random_task(6), random_task(5, seed=1)
    recipes = {measure: paper_recipes()[measure][:2] for measure in (CMD, CPR)}
    settings = Settings(sizes=(0.05, 0.3, 1.0))
    return discover(model, train, test, settings, recipes, validation=random_task(4, 2), tune_among=recipes)


@pytest.fixture(scope="module")
def result_folder(discovery, tmp_path_factory):
    folder = tmp_path_factory.mktemp("figures") / "r"
    write_result(discovery, folder)
    return folder


def make_run(
    discovery,
    graph=None,
    names=RECIPES,
    measures=(CMD, CPR),
    sizes=SIZES,
    examples=12,
    mean=None,
    seed=0,
    noise=1,
    **run,
):
    """Return random results of a run of some shape; `run` replaces facts about it."""
    rng, graph = np.random.default_rng(seed), graph or Graph(3, 4, 8)
    n_edges = graph.n_edges
    if mean is None:
        mean = rng.standard_t(1.3, n_edges) * 1e-3
        half = 0.2 * np.abs(mean) + np.median(np.abs(mean))
    else:
        mean, half = np.full(n_edges, mean), 0.2 * abs(mean) + 0.1
    kept = np.abs(mean) > half
    statistics = EdgeStatistics(graph, mean, mean - half, mean + 2 * half, kept, ~kept, np.where(kept, mean, 0))
    full, empty = rng.normal(4, 0.5, examples), rng.normal(0, 0.5, examples)
    asked = tuple(size_to_edges(size, n_edges) for size in sizes)
    outcomes, scores = [], EdgeScores(graph, mean[None])
    for measure in measures:
        for number, name in enumerate(names):
            order = np.argsort(-np.abs(mean) * np.exp(rng.normal(0, 0.5, n_edges)))
            circuits = [Circuit(graph, np.isin(np.arange(n_edges), order[:count])).prune() for count in asked]
            shares = np.array(sizes)[:, None] ** (0.2 / (1 + number % 3))
            values = empty + shares * (full - empty) + noise * rng.normal(0, 0.2, (len(sizes), examples))
            curve = Curve(tuple(sizes), asked, tuple(one.n_edges for one in circuits), values, full, empty)
            selections = tuple(
                Selection(one, "ilp", Status.OPTIMAL, count, 0.0, 0.0, 0.0)
                for one, count in zip(circuits, asked, strict=True)
            )
            outcomes.append(Outcome(measure, Recipe(alias=name), selections, curve))
    facts = replace(discovery.run, graph=graph, **run)
    return replace(discovery, run=facts, outcomes=tuple(outcomes), statistics=statistics, load_scores=lambda: scores)


ONE = {"measures": (CMD,), "names": RECIPES[:2]}
TINY = ONE | {"graph": Graph(1, 1, 1), "sizes": (0, 0.1, 0.5, 1.0)}
NO_EDGE = ONE | {"graph": Graph(1, 1, 1), "sizes": (0, 0.01)}
LONG_NAMES = ONE | {"names": (LONG_NAME, LONG_NAME + "x"), "model": LONG_NAME, "task": "w " * 200}
STRANGE_NAMES = ONE | {"names": ("_hidden", "$x_1$", r"\frac{1}", "two\nlines", "\x1b[31m"), "model": "$a_b$"}
MANY = {"names": [f"recipe {number}" for number in range(60)], "measures": (CMD,)}
ONE_RECIPE = ONE | {"names": ("Greedy",)}
NO_GREEDY = {"names": ("first", "second"), "graph": Graph(2, 2, 4, parallel=True)}
HUGE = ONE | {"noise": 1e305}
RUNS = {
    "faithfulness": ({}, {"measures": (CPR,), "examples": 1}, TINY, NO_EDGE, HUGE, LONG_NAMES, STRANGE_NAMES, MANY),
    "differences": ({}, {"measures": (CPR,), "examples": 1}, ONE_RECIPE, NO_GREEDY, HUGE, LONG_NAMES, MANY),
    "circuit": ({}, TINY, NO_EDGE, NO_GREEDY, LONG_NAMES, *(ONE | {"graph": graph} for graph in LARGE_GRAPHS)),
    "scores": (ONE, TINY, LONG_NAMES, *(ONE | {"mean": mean} for mean in (0.0, -5e-324, 1e100))),
}


def check_layout(figure) -> None:
    """Check that nothing is cut off and that no text overlaps another one."""
    FigureCanvasAgg(figure)
    figure.set_dpi(160)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)  # matplotlib warns if there is no room for panels
        figure.draw_without_rendering()
    drawn, (width, height) = figure.get_tightbbox(), figure.get_size_inches()
    assert min(drawn.x0, drawn.y0) >= -0.01 and drawn.x1 <= width + 0.01 and drawn.y1 <= height + 0.01, "cut off"
    texts = list(figure.texts)
    for axes in figure.axes:
        texts += [*axes.texts, axes.title, axes.xaxis.label, axes.yaxis.label]
        texts += axes.get_legend().get_texts() if axes.get_legend() else []
    texts = [text for text in texts if text.get_text().strip()]
    boxes, labels = np.array([text.get_window_extent().extents for text in texts]), [text.get_text() for text in texts]
    start, end = np.maximum(boxes[:, None, :2], boxes[:, :2]), np.minimum(boxes[:, None, 2:], boxes[:, 2:])
    overlaps = [(labels[a], labels[b]) for a, b in np.argwhere((end - start > 2).all(-1)) if a < b]
    assert not overlaps, f"{overlaps[0]} overlap"


@pytest.mark.parametrize("name, run", [(name, run) for name, runs in RUNS.items() for run in range(len(runs))])
def test_texts_neither_overlap_nor_are_cut_off(discovery, name, run):
    with figure_settings():
        check_layout(FIGURES[name](make_run(discovery, **RUNS[name][run])))


@pytest.mark.parametrize("name", ["ioi", "W" * 300])
def test_texts_of_a_study_neither_overlap_nor_are_cut_off(name):
    with figure_settings():
        check_layout(study_figure(test_untrusted_text.study(name)))


def test_writing_figures_twice_gives_equal_files(result_folder, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        paths = write_figures(tmp_path / "again", read_result(result_folder))
    assert [path.name for path in paths] == [f"{name}.{kind}" for name in FIGURES for kind in ("png", "svg")]
    assert sorted(path.name for path in (result_folder / "figures").iterdir()) == sorted(path.name for path in paths)
    for path in paths:
        assert path.read_bytes() == (result_folder / "figures" / path.name).read_bytes()
        if path.suffix == ".png":
            with Image.open(path) as image:
                image.verify()
                assert np.allclose(image.info["dpi"], 160, atol=0.1) and min(image.size) > 400
        else:
            assert ElementTree.parse(path).getroot().tag.endswith("svg")


def test_the_users_matplotlib_settings_change_nothing(discovery):
    run = make_run(discovery, names=RECIPES[:1])
    with figure_settings():
        expected = render(FIGURES["scores"](run))
    with matplotlib.rc_context({"font.size": 30, "axes.grid": True, "font.family": "monospace"}):
        with figure_settings():
            assert render(FIGURES["scores"](run)) == expected
        assert matplotlib.rcParams["font.size"] == 30


def test_names_are_drawn_as_they_are(discovery):
    """An SVG has each text as a comment before its paths."""
    names = ["_hidden", "$x_1$", r"\frac{1}", "plain"]
    run = make_run(discovery, names=names, model="$a_b$", task="_t")
    with figure_settings():
        svg = {name: render(make_figure(run))["svg"].decode() for name, make_figure in FIGURES.items()}
    assert all("<!-- $a_b$  ·  _t  ·" in figure for figure in svg.values())
    for name in names:
        assert f"<!-- {name}  0." in svg["faithfulness"]
        assert f"<!-- {name} -->" in svg["differences"] or name == overview.reference_outcome(run, CMD).name
    assert "a0.h1-&gt;" in svg["scores"] or "a0.h1->" in svg["scores"]


def test_names_with_control_characters_and_very_long_names_are_drawn(discovery, capfd):
    names = test_untrusted_text.NAMES[:12]
    run = make_run(discovery, names=names, measures=(CMD,), model="\n" * 99, task="名前" * 9999)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with figure_settings():
            for name in ("faithfulness", "differences"):
                assert len(render(FIGURES[name](run))["png"]) > 5000
    assert capfd.readouterr() == ("", "")


def test_curves_have_a_linear_and_a_logarithmic_axis_and_omit_sizes_without_edges(discovery):
    run = make_run(discovery)
    with figure_settings():
        figure = FIGURES["faithfulness"](run)
    assert run.outcomes[0].curve.n_requested[0] == 0
    assert [axes.get_xscale() for axes in figure.axes] == ["linear", "log"] * 2
    for axes, measure in zip(figure.axes, (CMD, CMD, CPR, CPR), strict=True):
        curves = [line for line in axes.lines if len(line.get_xdata()) == len(SIZES) - 1]
        assert all(tuple(line.get_xdata()) == SIZES[1:] for line in curves)
        for row, line in zip(overview.shown_outcomes(run, measure), curves, strict=True):
            np.testing.assert_allclose(line.get_ydata(), row.curve.faithfulness[1:])
        best, (area,) = run.best(measure).curve, axes.collections
        heights = area.get_paths()[0].vertices[:, 1]
        if axes.get_xscale() == "linear":  # the tinted area is CMD or CPR, between the curve and 1 or 0
            assert float(measure == CMD) in heights and np.isin(best.faithfulness[1:], heights).all()
        else:
            intervals = faithfulness_intervals(best.values, best.full, best.empty)[1:]
            assert all(np.isclose(heights, end).any() for one in intervals for end in (one.low, one.high))


def test_differences_are_paired_and_sorted_and_filled_if_significant(discovery):
    run = make_run(discovery, seed=3)
    with figure_settings():
        figure = FIGURES["differences"](run)
    verdicts = set()
    for axes, measure in zip(figure.axes, (CMD, CPR), strict=True):
        curves = {row.name: row.curve for row in run.of(measure)}
        expected = {name: compare(curves[name], curves["Greedy"], measure) for name in RECIPES[1:]}
        order = sorted(RECIPES[1:], key=lambda name: measure.better * expected[name].difference, reverse=True)
        assert [label.get_text() for label in axes.get_yticklabels()] == order
        dots = [line for line in axes.lines if len(line.get_xdata()) == 1]
        for name, dot in zip(order, dots, strict=True):
            comparison = expected[name]
            assert dot.get_xdata()[0] == comparison.difference
            assert (dot.get_markerfacecolor() != "white") is (comparison.is_better or comparison.is_worse)
            verdicts.add(comparison.is_better)
        low, high = axes.get_xlim()
        assert low < 0 < high
    assert verdicts == {True, False}


def test_without_greedy_recipes_are_compared_with_the_best(discovery):
    run = make_run(discovery, names=("first", "second"))
    for measure in (CMD, CPR):
        assert overview.reference_outcome(run, measure).name == run.best(measure, on_test=True).name


def test_the_exported_recipe_is_the_one_whose_circuits_the_folder_has(discovery, result_folder):
    """A recipe chosen beforehand, or else the best, as in `Discovery.best`."""
    run = read_result(result_folder)
    cases = {
        "portfolio": discovery.outcomes,
        "tuned": [outcome for outcome in discovery.outcomes if not outcome.choices],
        "best": [outcome for outcome in discovery.outcomes if not outcome.chosen_on],
    }
    for outcomes in cases.values():
        part = replace(discovery, outcomes=tuple(outcomes))
        names = [(outcome.measure, outcome.name) for outcome in outcomes]
        rows = tuple(row for row in run.outcomes if (row.measure, row.name) in names)
        for measure in (CMD, CPR):
            assert replace(run, outcomes=rows).best(measure).name == part.best(measure).name
    for measure in (CMD, CPR):
        outcome = run.best(measure)
        for share, exported in zip(outcome.curve.shares, outcome.circuits, strict=True):
            assert Circuit.load(result_folder / "circuits" / f"{measure.name.lower()}-{share:g}.npz") == exported


@pytest.mark.parametrize(
    "measure, heights, expected",
    [
        *((m, [0, 0.95, 0.99, 1, 1], 1) for m in (CMD, CPR)),
        *((m, [0, 0.5, 0.89, 0.91, 1], 3) for m in (CMD, CPR)),
        *((m, [0, 0, 0, 0, 1], 2) for m in (CMD, CPR)),
        (CPR, [0, -1, 0, 2, 1], 3), (CMD, [0, -1, 0, 2, 1], 2),  # twice the model's effect is not like the model
        (CPR, [0, 1.16, 1.0, 1, 1], 1), (CMD, [0, 1.16, 1.0, 1, 1], 2), (CMD, [0, 1.1, 0.9, 1, 1], 1),
    ],
)  # fmt: skip
def test_the_first_size_is_the_smallest_faithful_one_or_5_percent(discovery, measure, heights, expected):
    sizes = (0.02, 0.04, 0.05, 0.5, 1.0)
    (row,) = make_run(discovery, names=("Greedy",), measures=(measure,), sizes=sizes, graph=Graph(4, 4, 8)).outcomes
    full, empty = np.full(12, 2.0), np.full(12, 1.0)
    values = 1 + np.repeat(np.array(heights, float)[:, None], 12, axis=1)
    kept = tuple(max(1, number) for number in row.curve.n_requested)
    row = replace(row, curve=replace(row.curve, n_kept=kept, values=values, full=full, empty=empty))
    assert row.default_size == expected and row.circuit() == row.circuits[expected]


def test_the_kind_of_an_edge_is_what_its_name_says():
    for graph in (Graph(1, 1, 1), Graph(3, 4, 8), Graph(2, 3, 6, parallel=True)):
        for name, kind in zip(graph.edge_names, edge_kinds(graph), strict=True):
            head = name.split("->")[1]
            expected = head[-2] if head.endswith(">") else "logits" if head == "logits" else "MLP"
            assert KINDS[kind] == expected


def test_the_circuit_is_drawn_by_its_strongest_edges_from_below_to_above(discovery):
    run = make_run(discovery, Graph(5, 6, 8), ("Greedy",), (CMD,), sizes=(0.3, 1.0))
    mask = run.of(CMD)[0].circuits[0].mask
    assert mask.sum() > circuit.MAX_EDGES
    mean, graph = run.mean_scores, run.run.graph
    with figure_settings():
        figure = FIGURES["circuit"](run)
    (axes,) = figure.axes
    (lines,) = [one for one in axes.collections if isinstance(one, LineCollection)]
    paths, widths = lines.get_segments(), lines.get_linewidths()
    edges = circuit.strongest_edges(Circuit(graph, mask), mean)
    assert len(paths) == circuit.MAX_EDGES == len(edges) and mask[edges].all()
    assert np.abs(mean[edges]).min() >= np.abs(mean[np.setdiff1d(np.flatnonzero(mask), edges)]).max()
    assert (np.diff(np.abs(mean[edges])) >= 0).all() and (np.diff(widths) >= 0).all()
    assert all((np.diff(path[:, 1]) > 0).all() for path in paths)
    colours = [tuple(np.round(colour[:3], 3)) for colour in lines.get_colors()]
    pairs = set(zip(colours, edge_kinds(graph)[edges].tolist(), strict=True))
    assert len(pairs) == len({colour for colour, _ in pairs}) == len({kind for _, kind in pairs}) > 3
    assert [style[1] is not None for style in lines.get_linestyles()] == (mean[edges] < 0).tolist()
    texts = " ".join(text.get_text().replace("\n", " ") for text in figure.findobj(Text))
    assert f"Only the {circuit.MAX_EDGES} strongest edges" in texts and f"{mask.sum():,} of {graph.n_edges:,}" in texts


def test_boxes_of_nodes_do_not_touch():
    for graph in (Graph(1, 1, 1), Graph(2, 4, 8), Graph(12, 12, 8), Graph(30, 9, 8), Graph(2, 48, 8)):
        layout = circuit.NodeLayout(graph)
        boxes = layout.boxes(np.ones(graph.n_nodes, bool))
        low, high = boxes.min(1), boxes.max(1)
        apart = (high[:, None] <= low).any(-1)
        assert (apart | apart.T | np.eye(graph.n_nodes, dtype=bool)).all()
        assert (low[:, 0] >= layout.x_limits[0]).all() and (high[:, 0] <= layout.x_limits[1]).all()
        assert (layout.y[graph.edge_source] < layout.y[graph.edge_head]).all()


def test_an_edge_between_mlps_passes_beside_the_mlps_between_them():
    graph = Graph(4, 4, 8)
    layout = circuit.NodeLayout(graph)
    (path,) = layout.paths(np.array([graph.edge_index("m0->m2")]), ["MLP"])
    box = layout.boxes(np.array([name == "m1" for name in graph.node_names]))[0]
    is_inside = ((path >= box.min(0)) & (path <= box.max(0))).all(1)
    assert not is_inside.any()


def test_the_histogram_counts_every_edge_once(discovery):
    run = make_run(discovery)
    mean, unstable = run.mean_scores, run.statistics.sign_unstable
    with figure_settings():
        _, axes = FIGURES["scores"](run).axes
    positive, positive_unstable, negative, negative_unstable = (patch.get_data().values.sum() for patch in axes.patches)
    assert np.abs(mean).min() > np.abs(mean).max() / 10**DECADES
    assert (positive, -negative) == ((mean > 0).sum(), (mean < 0).sum())
    assert positive_unstable - negative_unstable == unstable.sum()
    assert score_bins(np.array([1e-30, 0.5, 2.0]))[0] == 0.5


def test_the_strongest_edges_have_their_intervals(discovery):
    run = make_run(discovery)
    unstable = np.random.default_rng(0).random(run.run.graph.n_edges) < 0.3
    statistics = replace(run.statistics, sign_unstable=unstable)
    with figure_settings():
        axes, _ = FIGURES["scores"](replace(run, statistics=statistics)).axes
    top = np.argsort(-np.abs(statistics.mean), kind="stable")[:25]
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert names == [statistics.graph.edge_names[edge] for edge in top]
    dots = [line for line in axes.lines if len(line.get_xdata()) == 1]
    assert [dot.get_xdata()[0] for dot in dots] == statistics.mean[top].tolist()
    hollow = [dot.get_markerfacecolor() == "white" for dot in dots]
    assert hollow == unstable[top].tolist() and any(hollow) and not all(hollow)
    intervals = [segment[:, 0] for segment in axes.collections[-1].get_segments()]
    np.testing.assert_allclose(intervals, np.stack([statistics.low[top], statistics.high[top]], axis=1))


def test_of_many_recipes_the_best_are_shown_and_the_caption_says_so(discovery):
    run = make_run(discovery, **MANY | {"names": [*MANY["names"], "Greedy"]})
    areas, most = [row.area for row in overview.shown_outcomes(run, CMD)], overview.MAX_RECIPES
    assert areas == sorted(areas) and most <= len(areas) <= most + 2
    assert "Greedy" in [row.name for row in overview.shown_outcomes(run, CMD)]
    assert f"Of 61 recipes the best {most}" in overview.omitted_recipes(run)
