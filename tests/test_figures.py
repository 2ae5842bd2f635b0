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

from edgewise import (
    CMD,
    CPR,
    Circuit,
    EdgeScores,
    Graph,
    InputError,
    Settings,
    discover,
    read_result,
    wrap_model,
    write_result,
)
from edgewise.core.statistics import EdgeStatistics
from edgewise.evaluate import Curve, compare, faithfulness_intervals, size_to_edges
from edgewise.graph import NodeGraph
from edgewise.recipes import Outcome, Recipe
from edgewise.recipes.recipe import paper_recipes
from edgewise.report import figures, overview
from edgewise.report.circuit_summary import KINDS, edge_kinds
from edgewise.report.figures import FIGURES, circuit, paper_figures, write_figures
from edgewise.report.figures.curves import study_figure
from edgewise.report.figures.dots import DECADES, score_bins
from edgewise.report.figures.style import SCREEN, Page, figure_settings, render
from edgewise.select import Selection, Status

SIZES = (0.001, 0.01, 0.05, 0.2, 0.5, 1.0)
RECIPES = ("Greedy", "ILP", "Bootstrapping", "ILP + Bootstrapping + PNR", "Portfolio")
LONG_NAME = "W" * 200
LARGE_GRAPHS = (Graph(30, 9, 8), Graph(2, 48, 8), Graph(60, 2, 8))


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
    discovery, graph=None, names=RECIPES, measures=(CMD, CPR), sizes=SIZES, examples=12, mean=None, seed=0, noise=1,
    **run,
):  # fmt: skip
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
LARGE = ONE_RECIPE | {"sizes": (0.01, 1.0)}
RUNS = {
    "faithfulness": ({}, {"measures": (CPR,), "examples": 1}, TINY, NO_EDGE, HUGE, LONG_NAMES, STRANGE_NAMES, MANY),
    "differences": ({}, {"measures": (CPR,), "examples": 1}, ONE_RECIPE, NO_GREEDY, HUGE, LONG_NAMES, MANY),
    "circuit": ({}, TINY, NO_EDGE, NO_GREEDY, LONG_NAMES, *(LARGE | {"graph": graph} for graph in LARGE_GRAPHS)),
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
        check_layout(FIGURES[name](make_run(discovery, **RUNS[name][run]), SCREEN))


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
    run = make_run(discovery, Graph(2, 2, 4), names=RECIPES[:2])
    with figure_settings():
        expected = render(FIGURES["differences"](run, SCREEN))
    with matplotlib.rc_context({"font.size": 30, "axes.grid": True, "font.family": "monospace"}):
        with figure_settings():
            assert render(FIGURES["differences"](run, SCREEN)) == expected
        assert matplotlib.rcParams["font.size"] == 30


def test_names_are_drawn_as_they_are(discovery):
    """An SVG has each text as a comment before its paths."""
    names = ["_hidden", "$x_1$", r"\frac{1}", "plain"]
    run = make_run(discovery, names=names, measures=(CMD,), model="$a_b$", task="_t")
    with figure_settings():
        svg = {name: render(make_figure(run, SCREEN), ["svg"])["svg"].decode() for name, make_figure in FIGURES.items()}
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
                assert len(render(FIGURES[name](run, SCREEN), ["png"])["png"]) > 5000
    assert capfd.readouterr() == ("", "")


def test_curves_have_a_linear_and_a_logarithmic_axis_and_omit_sizes_without_edges(discovery):
    run = make_run(discovery)
    with figure_settings():
        figure = FIGURES["faithfulness"](run, SCREEN)
    assert run.outcomes[0].curve.n_requested[0] == 0
    assert [axes.get_xscale() for axes in figure.axes] == ["linear", "log"] * 2
    for axes, measure in zip(figure.axes, (CMD, CMD, CPR, CPR), strict=True):
        curves = [line for line in axes.lines if len(line.get_xdata()) == len(SIZES) - 1]
        assert all(tuple(line.get_xdata()) == SIZES[1:] for line in curves)
        for row, line in zip(overview.ordered_outcomes(run, measure), curves, strict=True):
            np.testing.assert_allclose(line.get_ydata(), row.curve.faithfulness[1:])
        best, (area,) = run.best(measure).curve, axes.collections
        heights = area.get_paths()[0].vertices[:, 1]
        if axes.get_xscale() == "linear":  # the tinted area is CMD or CPR, between the curve and 1 or 0
            assert float(measure == CMD) in heights and np.isin(best.faithfulness[1:], heights).all()
        else:
            intervals = faithfulness_intervals(best.values, best.full, best.empty)[1:]
            assert all(np.isclose(heights, end).any() for one in intervals for end in (one.low, one.high))


def test_a_recipe_has_the_same_colour_in_all_panels_unless_it_stands_out(discovery):
    run = make_run(discovery, names=["Greedy", *(f"recipe {number}" for number in range(8))], seed=5)
    colours = {}
    with figure_settings():
        axes = FIGURES["faithfulness"](run, SCREEN).axes[::2]
    for panel, measure in zip(axes, (CMD, CPR), strict=True):
        lines = [line for line in panel.lines if len(line.get_xdata()) == len(SIZES) - 1]
        for row, line in zip(overview.ordered_outcomes(run, measure), lines, strict=True):
            if line.get_linewidth() <= 1:
                colours.setdefault(row.name, set()).add(line.get_color())
    assert len(colours) > 5 and all(len(used) == 1 for used in colours.values())


def test_differences_are_paired_and_sorted_and_filled_if_significant(discovery):
    run = make_run(discovery, seed=3)
    with figure_settings():
        figure = FIGURES["differences"](run, SCREEN)
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
        figure = FIGURES["circuit"](run, SCREEN)
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
        assert (layout.y[graph.edge_source] < layout.y[graph.edge_target]).all()


@pytest.mark.parametrize("shape", [(4, 4, 8), (12, 12, 8), (20, 2, 8), (3, 1, 8)])
def test_an_edge_passes_beside_the_boxes_of_other_nodes(shape):
    graph = Graph(*shape)
    layout, rng = circuit.NodeLayout(graph), np.random.default_rng(0)
    edges = rng.choice(graph.n_edges, min(150, graph.n_edges), replace=False)
    if shape == (4, 4, 8):
        edges = np.unique([*edges[:40], *map(graph.edge_index, ["m0->m1", "m1->m2", "m0->m2", "m0->m3"])])
    kinds = [KINDS[kind] for kind in edge_kinds(graph)[edges]]
    ends = [{int(graph.edge_source[edge]), int(graph.edge_target[edge])} for edge in edges]
    nodes = sorted(set.union(*ends))
    boxes = layout.boxes(np.isin(np.arange(graph.n_nodes), nodes))
    for path, own in zip(layout.paths(edges, kinds), ends, strict=True):
        heights = np.linspace(*path[[0, -1], 1], 1000)
        points = np.stack([np.interp(heights, path[:, 1], path[:, 0]), heights], axis=1)
        inside = ((points[:, None] > boxes.min(1)) & (points[:, None] < boxes.max(1))).all(-1).any(0)
        assert {node for node, is_inside in zip(nodes, inside, strict=True) if is_inside} <= own
        assert (np.abs(path[:, 0] - np.mean(layout.x_limits)) <= np.ptp(layout.x_limits) / 2).all()


# Machado, Oliveira and Fernandes (2009), severity 1: what people with protanopia and deuteranopia see of linear RGB.
COLOUR_BLINDNESS = {
    "none": np.eye(3),
    "protanopia": np.array([[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]]),
    "deuteranopia": np.array([[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]]),
}


def lab(colour, vision):
    """Return CIE L*a*b* of a colour as seen with a kind of vision."""
    rgb = np.array(matplotlib.colors.to_rgb(colour))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    xyz = to_xyz @ np.clip(COLOUR_BLINDNESS[vision] @ linear, 0, 1) / (0.9505, 1.0, 1.089)
    x, y, z = np.where(xyz > (6 / 29) ** 3, np.cbrt(xyz), xyz / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("vision", COLOUR_BLINDNESS)
def test_recipes_of_a_run_have_colours_that_can_be_distinguished(discovery, vision):
    """Eleven recipes are as many as `edgewise run` tries; a difference of 10 in L*a*b* is seen at a glance."""
    names = ["Greedy", *(f"recipe {number}" for number in range(10))]
    with figure_settings():
        axes = FIGURES["faithfulness"](make_run(discovery, names=names, measures=(CMD,)), SCREEN).axes[0]
    lines = [line for line in axes.lines if len(line.get_xdata()) == len(SIZES) - 1]
    colours = np.array([lab(line.get_color(), vision) for line in lines])
    distances = np.linalg.norm(colours[:, None] - colours, axis=-1)[~np.eye(11, dtype=bool)]
    assert len(lines) == len({line.get_color() for line in lines}) == len({line.get_marker() for line in lines}) == 11
    assert distances.min() > 10
    # Where curves coincide, a later and thinner line shows the earlier and wider one.
    drawn = sorted(lines, key=lambda line: line.get_zorder())
    assert np.diff([line.get_linewidth() for line in drawn]).max() <= 0


@pytest.mark.parametrize(
    "name, run, width",
    [(name, run, width) for name in RUNS for run, width in ((ONE, 5.5), (ONE, 3.25), (LONG_NAMES, 3.25))]
    + [("faithfulness", MANY, 3.25), ("faithfulness", {}, 3.25), ("differences", NO_GREEDY, 3.25)]
    + [("circuit", NO_EDGE, 3.25), ("circuit", ONE | {"graph": LARGE_GRAPHS[1]}, 3.25)],
    ids=str,
)
def test_figures_of_papers_have_their_width_and_no_title(discovery, name, run, width):
    with figure_settings(Page(width, small=8.0, normal=9.0, is_paper=True)):
        figure = FIGURES[name](make_run(discovery, **run), Page(width, small=8.0, normal=9.0, is_paper=True))
        check_layout(figure)
    assert figure.get_size_inches()[0] == width and not figure.get_suptitle() and not figure.get_supxlabel()
    texts = [text for text in figure.findobj(Text) if text.get_text().strip() and text.get_visible()]
    sizes = {text.get_size() for text in texts} - ({6.0} if name == "circuit" else set())
    assert {8.0} <= sizes and max(sizes) <= 9.0


@pytest.mark.parametrize("name, width", [("ioi", 5.5), ("W" * 300, 3.25)])
def test_figures_of_studies_fit_papers(name, width):
    with figure_settings(Page(width, small=8.0, normal=9.0, is_paper=True)):
        check_layout(study_figure(test_untrusted_text.study(name), Page(width, small=8.0, normal=9.0, is_paper=True)))


def test_the_text_of_paper_figures_is_text_and_files_are_reproducible(discovery, monkeypatch):
    monkeypatch.setattr(figures, "FIGURES", {"differences": FIGURES["differences"]})
    run = make_run(discovery, Graph(2, 2, 4), ("Greedy", "$x_1$ <b>"), (CMD,))
    files = paper_figures(run, 5.5, ["pdf", "svg"])
    assert list(files) == ["differences.pdf", "differences.svg"]
    assert files == paper_figures(run, 5.5, ["pdf", "svg"])
    texts = [
        text.text for text in ElementTree.fromstring(files["differences.svg"]).iter("{http://www.w3.org/2000/svg}text")
    ]
    assert "$x_1$ <b>" in texts and "CMD" in texts
    assert b"/FontFile2" in files["differences.pdf"] and b"/Type3" not in files["differences.pdf"]


@pytest.mark.parametrize(
    "file_types, width, words",
    [(["gif"], 5.5, "'gif'"), ([], 5.5, "file types"), (["pdf"], 1, "width 1:"), (["pdf"], float("nan"), "width nan")],
)
def test_unknown_file_types_and_impossible_widths_are_refused(discovery, file_types, width, words):
    with pytest.raises(InputError, match=words):
        paper_figures(make_run(discovery), width, file_types)


def test_the_command_writes_figures_once(edgewise, result_folder, tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "FIGURES", {"differences": FIGURES["differences"]})
    arguments = ["figures", result_folder, "--format", "SVG,", "--width", 3.25, "--out", tmp_path / "paper"]
    assert edgewise(*arguments)[0] == 0
    names = sorted(path.name for path in (tmp_path / "paper").iterdir())
    assert names == ["differences.svg"]
    code, _, err = edgewise(*arguments)
    assert code == 2 and "--overwrite" in err
    # By default beside the result, whatever the current folder is.
    code, text, _ = edgewise("figures", result_folder)
    folder = result_folder.with_name(f"{result_folder.name}-figures")
    assert code == 0 and str(folder) in text
    assert sorted(path.name for path in folder.iterdir()) == ["differences.pdf"]


def test_the_histogram_counts_every_edge_once(discovery):
    run = make_run(discovery)
    mean, unstable = run.mean_scores, run.statistics.sign_unstable
    with figure_settings():
        _, axes = FIGURES["scores"](run, SCREEN).axes
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
        axes, _ = FIGURES["scores"](replace(run, statistics=statistics), SCREEN).axes
    top = np.argsort(-np.abs(statistics.mean), kind="stable")[:25]
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert names == [statistics.graph.edge_names[edge] for edge in top]
    dots = [line for line in axes.lines if len(line.get_xdata()) == 1]
    assert [dot.get_xdata()[0] for dot in dots] == statistics.mean[top].tolist()
    hollow = [dot.get_markerfacecolor() == "white" for dot in dots]
    assert hollow == unstable[top].tolist() and any(hollow) and not all(hollow)
    intervals = [segment[:, 0] for segment in axes.collections[-1].get_segments()]
    np.testing.assert_allclose(intervals, np.stack([statistics.low[top], statistics.high[top]], axis=1))


def test_scores_that_differ_by_rounding_have_increasing_bins():
    rng = np.random.default_rng(0)
    for smallest in 10 ** rng.uniform(-5, 5, 200):
        largest = smallest
        for _ in range(rng.integers(1, 40)):
            largest = np.nextafter(largest, np.inf)
        bins = score_bins(np.array([smallest, largest]))
        assert (np.diff(bins) >= 0).all() and bins[0] == smallest and bins[-1] == largest


def test_the_caption_says_that_edges_among_nodes_are_left_out(discovery, monkeypatch):
    """A circuit of nodes has more edges than nodes."""
    monkeypatch.setattr(circuit, "MAX_EDGES", 40)
    run = make_run(discovery, NodeGraph(Graph(3, 4, 8)), ("Greedy",), (CMD,), sizes=(0.95,))
    shown = run.best(CMD).circuit()
    assert shown.n_edges < 40 < shown.plain().n_edges
    with figure_settings():
        texts = [text.get_text().replace("\n", " ") for text in FIGURES["circuit"](run, SCREEN).findobj(Text)]
    assert any("Only the 40 strongest edges" in text for text in texts)
