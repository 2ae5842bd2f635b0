"""Pages of every kind of view: untrusted text, single circuits, two runs, and very large graphs."""

from __future__ import annotations

import random
import string
from dataclasses import replace

import numpy as np
import pytest
from playwright.sync_api import expect

from edgewise import Circuit, Graph
from edgewise.recipes.run_info import Prompt
from edgewise.report.viewer import view as view_page
from edgewise.report.viewer.view import View, ViewRow, ViewRun, ViewSize

from .conftest import TIMEOUT_MS
from .sample_views import circuit_alone, letters, mask_of, percent, ranked, sample_view, two_runs

HOSTILE_TEXT = (
    '</script><script>hacked=1</script><img src=x onerror="hacked=1"><b>bold</b> & "quoted" \'too\' ${hacked=1}'
)
# Characters that change the direction of text, are invisible, or end lines.
CONTROL_CHARACTERS = "\u202edrow\u2066 \u200bhid\u2028den\u0007"


@pytest.fixture(scope="session")
def hostile_path(write_page):
    view = sample_view(name=HOSTILE_TEXT)
    prompt = Prompt(
        (HOSTILE_TEXT, CONTROL_CHARACTERS, "\n"),
        (CONTROL_CHARACTERS, HOSTILE_TEXT, "\t"),
        HOSTILE_TEXT,
        CONTROL_CHARACTERS,
    )
    run = replace(view.runs[0], facts={HOSTILE_TEXT: HOSTILE_TEXT, "file": CONTROL_CHARACTERS}, prompts=(prompt,) * 6)
    rows = tuple(
        replace(
            row,
            method=f"{row.method} {HOSTILE_TEXT} {CONTROL_CHARACTERS}",
            parameters=HOSTILE_TEXT,
            measure=row.measure,
        )
        for row in view.rows
    )
    return write_page(replace(view, runs=(run,), rows=rows))


def test_untrusted_text_is_shown_and_never_runs(open_page, hostile_path):
    page = open_page(hostile_path)
    tags = page.page.evaluate("[...document.querySelectorAll('*')].map((one) => one.tagName).sort().join()")
    assert page.page.title() == HOSTILE_TEXT and page.text("#title") == HOSTILE_TEXT
    page.click("#difference").click_node("m1").press("p")
    for tab in ("edges", "examples", "attention", "about"):
        page.click(f"#tab-{tab}")
    page.press("?", "Escape", "m", "d", "d", "ArrowDown", "Escape")
    places = page.places()
    cell = places["cells"]["input"]
    page.hover(places["left"] + cell["x"], places["top"] + cell["y"])
    name = page.text("#methods button:visible")
    assert "<b>bold</b>" in name
    assert page.page.evaluate("window.hacked") is None
    expect(page.page.locator("b:text-is('bold'), img")).to_have_count(0)
    assert page.page.locator("script").count() == tags.split(",").count("SCRIPT") == 5
    # The address takes any name there is.
    other = open_page(hostile_path, page.address())
    assert other.text("#caption") == page.text("#caption")


def test_control_characters_of_untrusted_tokens_are_escaped(share_page, hostile_path):
    page = share_page(hostile_path).edit_address("#tab=examples")
    shown = page.page.locator("#example-tokens .token[data-side=clean]").all_text_contents()
    assert shown[0] == HOSTILE_TEXT and shown[2] == "⏎"
    assert shown[1] == r"\u202edrow\u2066 \u200bhid\u2028den\u0007"
    expect(page.page.locator("#example-answers .correct")).to_have_text(HOSTILE_TEXT)
    page.click("#tab-attention")
    expect(page.page.locator(".heatmap .token").first).to_have_attribute("title", HOSTILE_TEXT)
    assert page.page.evaluate("window.hacked") is None


def test_untrusted_names_do_not_change_the_direction_of_text(share_page, hostile_path):
    """A name that turns the direction of text would show the numbers beside it backwards."""
    page = share_page(hostile_path)
    page.click("#difference")
    for tab in ("edges", "examples", "attention", "about"):
        page.click(f"#tab-{tab}")
    assert page.page.evaluate(TURNING_TEXTS) == []


# Texts with a character that changes the direction of text.
TURNING_TEXTS = """() => {
  const turns = /[\\u202a-\\u202e\\u2066-\\u2069\\u200e\\u200f\\u061c]/;
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const { data, parentElement } = walker.currentNode;
    if (turns.test(data) && !parentElement.closest("script")) found.push(`${parentElement.tagName}: ${data}`);
  }
  return [...new Set(found)];
}"""


def test_a_single_circuit_has_no_curve(open_page, write_page):
    view = circuit_alone()
    page = open_page(write_page(view))
    assert page.text("#title") == "mine"
    for part in ("#metrics", "#methods", "#difference", "#size-slider", "#curve-plot"):
        expect(page.page.locator(part)).to_be_hidden()
    assert page.text("#curve-said [data-said=faithfulness]") == "Not evaluated, so there is no curve."
    assert page.listed("all") == ranked(view, 0, mask_of(view, 0, 0))
    # Nobody resampled: no interval, no sign stability.
    name = page.page.locator("#list-all [data-edge]").first
    assert "not resampled" in name.get_attribute("aria-label") and name.locator(".interval").text_content() == ""
    page.press("ArrowRight", "ArrowDown", "m", "d", "l")
    expect(page.page.locator("#other")).to_be_hidden()
    page.click("#tab-examples")
    assert page.text("#examples-said") == "The page has no faithfulness of single examples for this circuit."
    page.click("#tab-attention")
    assert page.text("#attention-said").startswith("The page has no attention patterns for this circuit.")
    page.click("#tab-about")
    assert "mine.json" in page.text("#panel-about")


def test_a_circuit_that_was_evaluated_at_one_size_has_a_point_but_no_curve(open_page, write_page, view):
    row = replace(view.rows[0], sizes=view.rows[0].sizes[2:3], circuits=view.rows[0].circuits[2:3], metric=None)
    page = open_page(write_page(replace(view, rows=(row,), shown=0, size=0)))
    assert "0.93" in page.text("#curve-said [data-said=faithfulness]")
    assert page.text("#curve-said [data-said=goal]") == "Evaluated at one size, so there is no curve."
    expect(page.page.locator("#size-slider")).to_be_hidden()


def test_rows_with_and_without_a_curve_on_one_page(open_page, write_page, view):
    bare = tuple(ViewSize(size.share, size.asked, size.kept) for size in view.rows[0].sizes)
    rows = (replace(view.rows[0], sizes=bare, area=None, interval=None, metric=None), *view.rows[1:3])
    page = open_page(write_page(replace(view, rows=rows)))
    expect(page.page.locator("#curve-plot .line")).to_have_count(2)
    page.method(0).size(3)
    expect(page.page.locator("#curve-plot")).to_be_hidden()
    expect(page.page.locator("#size-slider")).to_be_visible()
    assert page.listed("all") == ranked(view, 0, mask_of(view, 0, 3))
    page.click("#difference").click("#swap")
    expect(page.page.locator("#curve-plot")).to_be_visible()


def test_two_runs_can_be_compared(open_page, write_page):
    view = two_runs()
    page = open_page(write_page(view))
    assert page.text("#title") == "first and second"
    assert page.page.locator("#methods button:visible").all_inner_texts() == [
        f"{method} · {run}" for run in ("first", "second") for method in ("Greedy", "ILP", "Learned")
    ]
    page.click("#difference")
    page.choose("#other", "ILP · second")
    here, there = mask_of(view, 1, 1), mask_of(view, 6, 1)
    assert page.settle().listed("here") == ranked(view, 1, here & ~there)
    # Ranked by the scores of the run that has them.
    assert page.listed("there") == ranked(view, 6, there & ~here)
    score = page.page.locator("#list-there [data-edge]").first
    edge = view.graph.edge_index(score.get_attribute("data-edge"))
    assert float(score.locator(".score").text_content().replace("\u2212", "-")) == pytest.approx(
        view.runs[1].mean[edge], rel=5e-3
    )
    page.click("#tab-about")
    assert "The run: first" in page.text("#panel-about") and "The run: second" in page.text("#panel-about")
    other = open_page(write_page(view), page.address())
    assert other.text("#caption") == page.text("#caption")


def test_a_graph_too_large_for_a_page_shows_how_many_edges_are_left_out(open_page, write_page, view, monkeypatch):
    monkeypatch.setattr(view_page, "MAX_EDGES", 100)
    page = open_page(write_page(view))
    assert page.text("#subtitle") == "4 layers × 3 heads · 309 edges, of which this page has 100"
    page.size(3)
    assert "Circuit of 309 edges of 309 · this page has 100 of them" in page.text("#caption")
    # Counts of a comparison are of the edges that the page has, and say so.
    said = "in both · counted among the 100 edges that this page has"
    page.edit_address("#vs=Greedy&size=1")
    assert "100 in both" in page.text("#caption") and said in page.text("#caption")
    assert "as far as this page has their edges" in page.text("#same-circuits")
    assert said not in page.edit_address("#vs=Greedy&size=0.04").text("#caption")


@pytest.fixture(scope="session")
def gpt2() -> View:
    """A made-up view of the shape of GPT-2 small."""
    graph, draw = Graph(12, 12, 768), np.random.default_rng(0)
    mean = draw.standard_t(1.5, graph.n_edges)
    order = np.argsort(-np.abs(mean))
    rows = []
    for method in ("Greedy", "ILP"):
        kept = [30, 325, 6500, graph.n_edges]
        masks = []
        for count in kept:
            mask = np.zeros(graph.n_edges, bool)
            mask[order[:count] if method == "Greedy" else draw.permutation(order[: count + count // 5])[:count]] = True
            masks.append(Circuit(graph, mask))
        sizes = tuple(
            ViewSize(count / graph.n_edges, count, count, at, at, at)
            for count, at in zip(kept, (0.3, 0.7, 0.9, 1), strict=True)
        )
        rows.append(ViewRow(0, "CMD", method, sizes, tuple(masks), "", -1, 0.1, (0.05, 0.2)))
    return View("made up", graph, (ViewRun("made up", {}, mean),), tuple(rows), 0, 1)


@pytest.fixture(scope="session")
def gpt2_path(gpt2, write_page):
    return write_page(gpt2)


MOST = 1500


def test_only_the_strongest_of_thirty_thousand_edges_are_drawn(share_page, gpt2, gpt2_path):
    page = share_page(gpt2_path).record_lines()
    strength = np.abs(gpt2.runs[0].mean)
    for size, kept in ((2, 6500), (3, 32491), (1, 325), (0, 30)):
        page.size(size)
        lines = page.lines()
        assert len(lines) == min(kept, MOST)
        said = f"only the strongest {MOST:,} lines of {kept:,} are drawn"
        assert (said in page.text("#caption")) == (kept > MOST)
        assert f"Circuit of {kept:,} edges of 32,491" in page.text("#caption")
        assert {line["name"] for line in lines} == set(ranked(gpt2, 0, mask_of(gpt2, 0, size))[:MOST])
    expect(page.page.locator("#list-all [data-edge]")).to_have_count(30)
    page.size(3)
    assert page.page.locator("#list-all [data-edge]").count() < 200  # of a long list, the beginning
    top = page.page.locator("#list-all [data-edge]").evaluate_all("all => all.map((one) => one.dataset.edge)")
    best = [gpt2.graph.edge_names[edge] for edge in np.argsort(-strength)[: len(top)]]
    assert top == best


def test_a_large_difference_draws_differing_edges_first(share_page, gpt2, gpt2_path):
    page = share_page(gpt2_path).record_lines().edit_address("#vs=ILP").size(2)
    here, there = mask_of(gpt2, 0, 2), mask_of(gpt2, 1, 2)
    counts = (here & ~there).sum(), (there & ~here).sum(), (here & there).sum()
    assert "{:,} only in Greedy · {:,} only in ILP · {:,} in both".format(*counts) in page.text("#caption")
    lines = page.lines()
    assert len(lines) == MOST < counts[0] + counts[1]
    assert len({line["colour"] for line in lines}) == 2


def test_the_three_strongest_edges_into_logits_of_a_large_graph(share_page, gpt2, gpt2_path):
    page = share_page(gpt2_path).size(3).click("#list-nodes [data-node=logits]")
    into = letters(gpt2.graph) == "logits"
    found = page.page.locator("#list-into [data-edge]").evaluate_all("all => all.map((one) => one.dataset.edge)")
    assert found[:3] == ranked(gpt2, 0, into)[:3]
    assert page.page.locator("#list-into h3").inner_text().endswith(f"({into.sum()})")


@pytest.mark.parametrize("shape", [(1, 1, False), (2, 16, False), (16, 1, True)])
def test_graphs_of_every_shape_are_shown(open_page, write_page, shape):
    layers, heads, parallel = shape
    graph = Graph(layers, heads, 48, parallel)
    score = np.random.default_rng(0).normal(size=graph.n_edges)
    row = ViewRow(0, "", "all", (ViewSize(1.0, graph.n_edges, graph.n_edges),), (Circuit.full(graph),))
    view = View("shape", graph, (ViewRun("run", {}, score),), (row,))
    page = open_page(write_page(view)).record_lines().press("+", "0")
    names = {line["name"] for line in page.lines()}
    assert names == set(ranked(view, 0, np.ones(graph.n_edges, bool))[:MOST])
    places = page.places()
    # No line hides another.
    assert len({tuple(curve) for curve in places["curves"].values()}) == graph.n_edges
    for name in graph.node_names[:: max(1, graph.n_nodes // 7)]:
        cell = places["cells"][name]
        assert page.hover(places["left"] + cell["x"], places["top"] + cell["y"])["name"] == name
    # Every line leads upwards, from its source's cell to its reader's.
    assert all(curve[7] < curve[1] for curve in places["curves"].values())


def test_scores_that_are_all_zero_are_shown(open_page, write_page):
    graph = Graph(2, 2, 4)
    row = ViewRow(0, "", "all", (ViewSize(1.0, graph.n_edges, graph.n_edges),), (Circuit.full(graph),))
    page = open_page(
        write_page(View("zero", graph, (ViewRun("run", {}, np.zeros(graph.n_edges)),), (row,)))
    ).record_lines()
    page.press("+", "0")
    assert len(page.lines()) == graph.n_edges
    assert all(np.isfinite(line["width"]) for line in page.lines())
    # Files without scores have nothing to show in their place.
    assert set(page.page.locator("#list-all .score").all_text_contents()[1:]) == {""}
    assert page.text("#list-all h3").startswith("Edges")
    # Nodes with edges are in the circuit, whatever their scores.
    nodes = page.page.locator("#list-nodes [data-node]").evaluate_all("all => all.map((one) => one.dataset.node)")
    assert set(nodes) == set(graph.node_names)
    titles = page.page.locator("#list-nodes [data-node]").evaluate_all("all => all.map((one) => one.title)")
    assert not any("not in this circuit" in title for title in titles) and "11 edges" in titles
    assert page.page.evaluate(CELLS_INSIDE) == [True] * graph.n_nodes


CELLS_INSIDE = """async () => {
  const { load } = await import("edgewise/data.js");
  const { cellsOf, circuitsOf, shownEdges } = await import("edgewise/scene.js");
  const { initial } = await import("edgewise/state.js");
  const view = await load(document);
  const state = initial(view);
  const circuits = circuitsOf(view, state);
  return cellsOf(view, state, circuits, shownEdges(view, state, circuits)).map((cell) => cell.inside);
}"""


def test_a_custom_faithfulness_is_not_shown_as_mibs(open_page, write_page, view):
    """The page can't compute it on single examples."""
    run = replace(view.runs[0], definition="Half", facts={"faithfulness": "half of the ratio"})
    page = open_page(write_page(replace(view, runs=(run,))), "#tab=examples")
    assert page.text("#examples-said") == "The page has no faithfulness of single examples for this circuit."
    expect(page.page.locator("#example-metrics")).to_have_count(0)
    page.click("#tab-about")
    about = page.text("#panel-about")
    assert "half of the ratio" in about and "0 is the empty circuit" not in about


def test_sizes_have_the_unit_of_their_run(open_page, write_page):
    view = two_runs()
    page = open_page(write_page(replace(view, runs=(view.runs[0], replace(view.runs[1], unit="node")))))
    expect(page.page.locator("#curve-plot")).to_contain_text("share of edges asked for")
    page.method(6)
    expect(page.page.locator("#curve-plot")).to_contain_text("share of nodes asked for")


def test_an_empty_circuit_is_shown(open_page, write_page):
    graph = Graph(2, 2, 4)
    empty, full = Circuit(graph, np.zeros(graph.n_edges, bool)), Circuit.full(graph)
    sizes = (ViewSize(0.01, 1, 0, 0.0, 0.0, 0.0), ViewSize(1.0, graph.n_edges, graph.n_edges, 1.0, 1.0, 1.0))
    row = ViewRow(0, "CMD", "none", sizes, (empty, full), "", -1, 0.5)
    page = open_page(write_page(View("empty", graph, (ViewRun("run", {}, np.ones(graph.n_edges)),), (row,))))
    assert "Circuit of 0 edges" in page.text("#caption") and "none" in page.text("#list-all")
    assert page.text("#curve-said [data-said=size]") == f"{percent(0.01)} · 0 of 1 edge asked for"
    page.click_node("a0.h0")
    assert page.text("#list-into .note") == "none"


def test_a_truncated_page_shows_an_error(browser, path, tmp_path):
    """A download that broke off: words rather than an empty page."""
    text = path.read_text("utf-8")
    start = text.index('id="arrays">') + len('id="arrays">')
    broken = tmp_path / "broken.html"
    broken.write_text(text[:start] + text[start + 4000 :], "utf-8")
    context = browser.new_context()
    context.set_default_timeout(TIMEOUT_MS)
    page = context.new_page()
    page.goto(broken.as_uri())
    expect(page.locator("#failed")).to_contain_text("This page can't be shown")
    context.close()


def test_random_names_are_shown_and_addressed(open_page, write_page, view):
    draw = random.Random(0)
    alphabet = string.printable + "äß語😀\u202e\u200d\u0301<>&\"'`${}\\"
    names = ["".join(draw.choices(alphabet, k=draw.randrange(1, 40))) for _ in view.rows]
    rows = tuple(replace(row, method=name, measure="CMD") for row, name in zip(view.rows, names, strict=True))
    path = write_page(replace(view, rows=rows))
    page = open_page(path)
    shown = page.page.locator("#methods button").evaluate_all("all => all.map((one) => one.dataset.method)")
    assert shown == names
    for row in range(len(names)):
        other = page.method(row).address()
        assert page.module("state", FOUND, other) == row


FOUND = """async ({ fromAddress }, address) => {
  const { load } = await import("edgewise/data.js");
  return fromAddress(await load(document), address).row;
}"""


def test_heads_are_ranked_among_all_heads_of_the_circuit(open_page, write_page, view):
    """Also among those whose attention the page lacks."""
    row, graph = view.rows[view.shown], view.graph
    edges = np.flatnonzero(mask_of(view, view.shown, view.size))
    total = np.zeros(graph.n_nodes)
    for ends in (graph.edge_source, graph.edge_target):
        np.add.at(total, ends[edges], np.abs(view.runs[row.run].mean[edges]))
    scores = {name: score for name, score in zip(graph.node_names, total, strict=True) if "h" in name and score > 0}
    ranked_heads = sorted(scores, key=lambda name: -scores[name])
    assert len(ranked_heads) > len(view.runs[0].attention.heads)
    page = open_page(write_page(view), "#tab=attention")
    for node in view.runs[0].attention.heads:
        name = graph.node_names[node]
        if name in scores:
            page.choose("#attention-head", str(node))
            words = f"{name} ranks {ranked_heads.index(name) + 1} of {len(ranked_heads)} heads in the circuit"
            assert words in page.text("#attention-said")
