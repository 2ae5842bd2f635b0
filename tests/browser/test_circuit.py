"""Which circuit a page shows, and which of its edges: what is drawn and listed is what the view holds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from playwright.sync_api import expect

from .sample_views import (
    SHARES,
    between,
    faithfulness,
    fixed,
    letters,
    mask_of,
    number,
    percent,
    present,
    ranked,
    strength_of,
)

CELLS = "all => all.map((one) => [one.ariaLabel, ...Array.from(one.children, (part) => part.textContent)])"
CUT = "all => all.filter((one) => one.scrollWidth > one.clientWidth).map((one) => one.textContent)"
CMD_GREEDY, CMD_ILP, CMD_LEARNED, CPR_GREEDY, CPR_ILP = range(5)


def drawn_edges(page) -> dict[str, dict]:
    """The lines on the canvas, by the names of their edges."""
    return {line["name"]: line for line in page.lines()}


@pytest.mark.parametrize("size", range(len(SHARES)))
def test_the_slider_changes_circuit_point_and_text(page, view, size):
    page.record_lines().size((size + 1) % len(SHARES)).size(size)
    row, shown = view.rows[view.shown], view.rows[view.shown].sizes[size]
    said = page.text("#curve-said [data-said=size]")
    kept = f"{shown.kept} edges" if shown.kept == shown.asked else f"{shown.kept} of {shown.asked} edges asked for"
    assert said == f"{percent(shown.share)} · {kept}"
    words = between(shown.faithfulness, shown.low, shown.high, fixed)
    assert page.text("#curve-said [data-said=faithfulness]") == f"faithfulness {words}"
    assert page.text("#curve-said [data-said=goal]").startswith(f"first {row.goal} at {percent(row.sizes[1].share)}")
    assert f"Circuit of {shown.kept} edges of {view.graph.n_edges}" in page.text("#caption")
    expect(page.page.locator("#size-slider")).to_have_value(str(size))
    expect(page.page.locator("#curve-plot .point")).to_have_attribute("data-size", str(size))
    mask = mask_of(view, view.shown, size)
    assert page.listed("all") == ranked(view, view.shown, mask)
    assert set(drawn_edges(page)) == set(ranked(view, view.shown, mask))


def test_the_point_lies_on_the_curve_and_moves_with_the_size(page, view):
    found = []
    for size in range(len(SHARES)):
        page.size(size)
        point = page.page.locator("#curve-plot .point")
        found.append([float(point.get_attribute(name)) for name in ("cx", "cy")])
    x, y = np.array(found).T
    logs, reached = np.log(SHARES), np.array([size.faithfulness for size in view.rows[view.shown].sizes])
    # Both axes are straight: shares logarithmic, and more faithful is higher.
    np.testing.assert_allclose(np.polyval(np.polyfit(logs, x, 1), logs), x, atol=0.1)
    slope, start = np.polyfit(reached, y, 1)
    np.testing.assert_allclose(slope * reached + start, y, atol=0.1)
    assert slope < 0
    page.press("l")
    across = float(page.page.locator("#curve-plot .point").get_attribute("cx"))
    page.size(0)
    assert float(page.page.locator("#curve-plot .point").get_attribute("cx")) < x[0] + 0.2 * (across - x[0])


def test_a_click_on_the_curve_chooses_the_size(page, view):
    page.size(2)
    point = page.page.locator("#curve-plot .point").bounding_box()
    page.size(0)
    page.click_at(point["x"] + point["width"] / 2, point["y"] + 60)
    assert percent(SHARES[2]) in page.settle().text("#curve-said [data-said=size]")
    page.click(".curve-marks [data-size='0']")
    expect(page.page.locator("#size-slider")).to_have_value("0")


def test_recipe_and_measure_buttons(page, view):
    assert page.pressed("#methods") == ["ILP"] and page.pressed("#metrics") == ["CMD"]
    page.method(CMD_LEARNED)
    assert page.pressed("#methods") == ["Learned"]
    assert page.listed("all") == ranked(view, CMD_LEARNED, mask_of(view, CMD_LEARNED, 1))
    assert page.text("#curve-said [data-said=goal]") == (
        f"never within 0.1 of 1 below {percent(1)}: nearest 0.71, at {percent(0.3)}"
    )
    # Learned has no circuits for CPR: the first method there is shown.
    page.click("[data-metric=CPR]")
    assert page.pressed("#metrics") == ["CPR"] and page.pressed("#methods") == ["Greedy"]
    assert page.page.locator("#methods button:visible").all_inner_texts() == ["Greedy", "ILP"]
    assert page.text("#curve-said [data-said=area]") == f"CPR {between(0.79, 0.74, 0.84)} · higher is better"
    page.method(CPR_ILP).click("[data-metric=CMD]")
    assert page.pressed("#methods") == ["ILP"]
    assert page.text("#curve-said [data-said=area]") == f"CMD {between(0.31, 0.26, 0.36)} · lower is better"


def test_a_measure_explains_itself_and_its_selection(page):
    said = "#curve-said [data-said=selected]"
    assert page.text(said) == "circuits for CMD are selected by absolute scores"
    title = page.page.locator("[data-metric=CMD]").get_attribute("title")
    assert "between the faithfulness curve and 1" in title and "lower is better" in title and "absolute" in title
    page.click("[data-metric=CPR]")
    assert page.text(said) == "circuits for CPR are selected by signed scores"
    # Learned circuits are chosen by what was learned.
    page.click("[data-metric=CMD]").method(CMD_LEARNED)
    expect(page.page.locator(said)).to_have_count(0)


@pytest.mark.parametrize("size", [0, 2])
def test_difference_mode_lists_the_edges_of_one_circuit_only(page, view, size):
    page.record_lines().size(size).click("#difference")
    page.choose("#other", "Learned")
    here, there = mask_of(view, CMD_ILP, size), mask_of(view, CMD_LEARNED, size)
    expected = {
        "here": ranked(view, CMD_ILP, here & ~there),
        "there": ranked(view, CMD_LEARNED, there & ~here),
        "shared": ranked(view, CMD_ILP, here & there),
    }
    assert all(expected.values())
    for name, edges in expected.items():
        assert page.listed(name) == edges
        assert f"({len(edges)})" in page.text(f"#list-{name} h3")
    caption = page.text("#caption")
    counts = [len(expected[name]) for name in ("here", "there", "shared")]
    assert "{} only in ILP · {} only in Learned · {} in both".format(*counts) in caption
    lines = drawn_edges(page)
    assert set(lines) == set().union(*expected.values())
    colours = {name: {lines[edge]["colour"] for edge in edges} for name, edges in expected.items()}
    assert all(len(found) == 1 for found in colours.values()) and len(set().union(*colours.values())) == 3
    faint = max(lines[edge]["alpha"] for edge in expected["shared"])
    assert faint < min(lines[edge]["alpha"] for name in ("here", "there") for edge in expected[name])
    # Both circuits are spoken of beside the curve.
    said = page.page.locator("#curve-said [data-said=faithfulness]").all_inner_texts()
    sizes = [view.rows[row].sizes[size] for row in (CMD_ILP, CMD_LEARNED)]
    assert said == [f"faithfulness {between(one.faithfulness, one.low, one.high, fixed)}" for one in sizes]
    areas = page.page.locator("#curve-said [data-said=area]").all_inner_texts()
    assert areas == [f"CMD {between(0.31, 0.26, 0.36)} · lower is better"] * 2


def test_equal_circuits_link_to_the_sizes_at_which_recipes_differ(open_page, write_page, view):
    greedy = view.rows[CMD_GREEDY]
    circuits = tuple(view.rows[CMD_ILP].circuits[at] if at in (0, 2) else greedy.circuits[at] for at in range(4))
    rows = (greedy, replace(view.rows[CMD_ILP], circuits=circuits), replace(greedy, method="Same"))
    page = open_page(write_page(replace(view, rows=rows)), "#vs=Greedy")
    assert page.text("#same-circuits") == (
        f"Both circuits have the same edges at {percent(SHARES[1])}. "
        f"They differ at {percent(SHARES[0])}, {percent(SHARES[2])}."
    )
    page.click("#same-circuits [data-size='2']")
    expect(page.page.locator("#size-slider")).to_have_value("2")
    expect(page.page.locator("#same-circuits")).to_have_count(0)
    assert page.listed("here")
    page.method(2)
    assert page.text("#same-circuits").endswith("They are the same at every size.")


def test_badges_of_a_difference_have_the_colour_of_their_circuit(page, view):
    page.size(2).click("#difference")
    ends = dict(zip(view.graph.edge_names, letters(view.graph), strict=True))
    words = {"q": "q", "k": "k", "v": "v", "MLP": "M", "logits": "L"}
    hues = {}
    for part in ("here", "there", "shared"):
        edges, badges = page.listed(part), page.page.locator(f"#list-{part} .badge")
        assert badges.all_inner_texts() == [words[ends[edge]] for edge in edges]
        hues[part] = set(badges.evaluate_all("all => all.map((one) => getComputedStyle(one).borderBottomColor)"))
    assert [len(found) for found in hues.values()] == [1, 1, 1] and len(set().union(*hues.values())) == 3


@pytest.mark.parametrize("width", [390, 1100, 1280, 1440])
def test_difference_mode_does_not_move_the_page_header(page, width):
    page.resize(width, 800)
    parts = ["#metrics", "#difference", "#methods [data-row='0']", "#board"]
    where = lambda: [page.page.locator(part).bounding_box() for part in parts]  # noqa: E731
    before = where()
    page.click("#difference")
    assert where()[:-1] == before[:-1] and where()[-1]["y"] == before[-1]["y"]


def test_difference_mode_can_be_swapped_and_left(page, view):
    page.click("#difference")
    assert page.text("#vs-here") == "ILP"
    expect(page.page.locator("#other")).to_have_value(str(CMD_GREEDY))
    only = page.listed("here")
    page.click("#swap")
    assert page.text("#vs-here") == "Greedy" and page.listed("there") == only
    page.click("#difference")
    expect(page.page.locator("#other")).to_be_hidden()
    assert page.listed("all") == ranked(view, CMD_GREEDY, mask_of(view, CMD_GREEDY, 1))


def test_difference_mode_across_measures(page, view):
    """The second circuit may be of another metric."""
    page.click("#difference")
    page.choose("#other", str(CPR_ILP))
    here, there = mask_of(view, CMD_ILP, 1), mask_of(view, CPR_ILP, 1)
    assert page.listed("here") == ranked(view, CMD_ILP, here & ~there)
    assert page.listed("there") == ranked(view, CPR_ILP, there & ~here)


@pytest.mark.parametrize("row", [CMD_ILP, CMD_LEARNED])
def test_a_list_row_shows_all_facts_of_an_edge(page, view, row):
    page.method(row).size(2)
    run, index = view.runs[0], {name: edge for edge, name in enumerate(view.graph.edge_names)}
    edges = page.listed("all")
    found = page.page.locator("#list-all [data-edge]").evaluate_all(CELLS)
    assert [cells[2] for _, *cells in found] == edges
    assert page.resize(1440, 900).page.locator("#list-all .interval, #list-all .score").evaluate_all(CUT) == []
    page.resize(1280, 800)
    for rank, (words, *cells) in enumerate(found, start=1):
        name = cells[2]
        edge = index[name]
        low, mean, high = run.low[edge], run.mean[edge], run.high[edge]
        assert cells == [
            str(rank), "", name, number(mean if row == CMD_ILP else view.rows[row].value[edge]),
            f"[{number(low, 2)}, {number(high, 2)}]", "±" if run.unstable[edge] else "✓",
            f"{present(view, row, edge)}/4",
        ]  # fmt: skip
        assert words.startswith(f"{rank}. {name}, score {between(mean, low, high)}, sign ")
        assert ("unstable" in words) == run.unstable[edge]
    if row == CMD_LEARNED:  # weak scores are among its edges
        assert {True, False} == {bool(run.unstable[index[name]]) for name in edges}


def test_lines_show_strength_sign_and_destination(page, view):
    page.record_lines().size(3)
    lines = drawn_edges(page)
    mean = dict(zip(view.graph.edge_names, view.runs[0].mean, strict=True))
    ends = dict(zip(view.graph.edge_names, letters(view.graph), strict=True))
    by_strength = sorted(lines, key=lambda name: abs(mean[name]))
    widths = [lines[name]["width"] for name in by_strength]
    assert (np.diff(widths) > 0).all() and widths[-1] > 2 * widths[0]
    assert {name for name, line in lines.items() if line["dashed"]} == {name for name in lines if mean[name] < 0}
    colours = {end: {line["colour"] for name, line in lines.items() if ends[name] == end} for end in set(ends.values())}
    assert [len(found) for found in colours.values()] == [1] * 5 and len(set().union(*colours.values())) == 5
    page.click("[data-colour=sign]")
    lines = drawn_edges(page)
    signs = {sign: {line["colour"] for name, line in lines.items() if (mean[name] < 0) == sign} for sign in (0, 1)}
    assert [len(found) for found in signs.values()] == [1, 1] and signs[0] != signs[1]


@pytest.mark.parametrize("end", ["q", "k", "v", "MLP", "logits"])
def test_filter_by_destination(page, view, end):
    page.record_lines().size(2).click(f"[data-letter='{end}']")
    mask = mask_of(view, CMD_ILP, 2)
    without = mask & (letters(view.graph) != end)
    assert 0 < without.sum() < mask.sum()
    assert page.listed("all") == ranked(view, CMD_ILP, without)
    assert set(drawn_edges(page)) == set(ranked(view, CMD_ILP, without))
    assert f"{without.sum()} selected by node, search and filters" in page.text("#caption")
    page.click("#reset")
    assert page.listed("all") == ranked(view, CMD_ILP, mask)


def test_filter_by_sign_and_least_score(page, view):
    mean, mask = view.runs[0].mean, mask_of(view, CMD_ILP, 2)
    page.size(2).click("[data-sign=negative]")
    assert page.listed("all") == ranked(view, CMD_ILP, mask & (mean < 0))
    page.click("[data-sign=positive]")
    assert page.listed("all") == ranked(view, CMD_ILP, mask & (mean > 0))
    page.click("[data-sign=both]").fill("#least", "95")
    share = 10 ** (4 * (95 / 100 - 1))
    assert page.text("#least-said") == f"{percent(share)} of strongest"
    strength = strength_of(view, CMD_ILP)
    strong = strength >= share * strength.max()
    assert 0 < (mask & strong).sum() < mask.sum()
    assert page.listed("all") == ranked(view, CMD_ILP, mask & strong)


def test_edges_outside_the_circuit_can_be_shown(page, view):
    page.record_lines().page.locator("#all").check()
    page.settle()
    mask = mask_of(view, CMD_ILP, 1)
    assert page.listed("all") == ranked(view, CMD_ILP, np.ones_like(mask))
    lines = drawn_edges(page)
    assert set(lines) == set(view.graph.edge_names)
    outside = ranked(view, CMD_ILP, ~mask)
    assert max(lines[name]["alpha"] for name in outside) < min(lines[name]["alpha"] for name in lines.keys() - outside)
    # Dots, not dashes.
    inside = ranked(view, CMD_ILP, mask)
    broken = {tuple(lines[name]["dash"]) for name in outside}, {tuple(lines[name]["dash"]) for name in inside}
    assert len(broken[0]) == 1 and () not in broken[0] and not broken[0] & broken[1]


def test_the_strongest_nodes_are_listed(page, view):
    graph, strength = view.graph, strength_of(view, CMD_ILP)
    mask = mask_of(view, CMD_ILP, 1)
    totals = {
        name: strength[mask & ((graph.edge_source == node) | (graph.edge_target == node))].sum()
        for node, name in enumerate(graph.node_names)
    }
    inner = sorted((name for name in totals if name[0] in "am"), key=lambda name: -totals[name])
    offered = page.page.locator("#list-nodes [data-node]")
    assert offered.all_inner_texts() == [*inner[:8], "logits", "input"]
    titles = offered.evaluate_all("all => all.map((one) => one.title)")
    assert titles[:8] == [f"total score {number(totals[name])}" for name in inner[:8]]


def test_choose_an_edge_in_the_list(page, view):
    name = page.listed("all")[4]
    page.record_lines().click(f"[data-edge='{name}']")
    assert page.text("#chosen [data-tag]") == name
    expect(page.page.locator(f"[data-edge='{name}']")).to_have_attribute("aria-pressed", "true")
    lines = page.lines()
    assert max(lines, key=lambda line: line["width"])["alpha"] == 1
    page.click("#chosen button")
    expect(page.page.locator("#chosen [data-tag]")).to_have_count(0)


@pytest.mark.parametrize("row", [CMD_ILP, CPR_ILP])
@pytest.mark.parametrize("size", [0, 3])
def test_examples_are_sorted_by_loss(page, view, row, size):
    if row == CPR_ILP:
        page.click("[data-metric=CPR]")
    page.size(size).click("#tab-examples")
    values = faithfulness(view, row, size)
    loss = -values if view.rows[row].better > 0 else np.abs(1 - values)
    order = sorted(range(len(values)), key=lambda at: (np.isnan(values[at]), -loss[at]))
    known = values[~np.isnan(values)]
    assert f"{(known < 0.5).sum()} of {len(known)} below 0.5" in page.text("#examples-said")
    assert "Undefined on 1 example" in page.text("#examples-note")
    page.click("#examples-worst")
    assert page.text("#example-heading h3") == f"Example {np.nanargmax(loss)}"
    strip = page.page.locator("#examples-strip")
    strip.focus()
    page.press("Home")
    for rank, example in enumerate(order):
        shown = "undefined" if np.isnan(values[example]) else fixed(values[example])
        assert page.text("#example-heading h3") == f"Example {example}"
        expect(strip).to_have_attribute("aria-valuenow", str(rank + 1))
        expect(strip).to_have_attribute("aria-valuetext", f"example {example} · {shown}")
        rows = page.page.locator("#example-metrics tbody tr").evaluate_all(
            "all => all.map((row) => [row.dataset.of, ...Array.from(row.cells, (cell) => cell.textContent).slice(1)])"
        )
        run = view.runs[0]
        say = fixed if abs(run.full[example] - run.empty[example]) >= 0.1 else number
        metric = view.rows[row].metric[size, example]
        assert rows == [
            ["model", say(run.full[example]), ""], ["shown", say(metric), shown], ["empty", say(run.empty[example]), ""]
        ]  # fmt: skip
        page.press("ArrowRight")


def test_an_example_shows_its_tokens_answers_and_differences(page, view):
    page.click("#tab-examples").page.locator("#examples-strip").focus()
    page.press("End", "ArrowLeft")
    example = int(page.text("#example-heading h3").split()[1])
    prompt = view.runs[0].prompts[example]
    for side, tokens in (("clean", prompt.clean), ("corrupted", prompt.corrupted)):
        shown = page.page.locator(f"#example-tokens .token[data-side={side}]").all_text_contents()
        assert shown == [token.replace(" ", "·") for token in tokens]
    pairs = zip(prompt.clean, prompt.corrupted, strict=True)
    differ = page.page.locator("#example-tokens .differ").evaluate_all("all => all.map((one) => one.dataset.position)")
    assert differ == [str(at) for at, pair in enumerate(pairs) if pair[0] != pair[1]]
    assert page.text("#example-answers") == f"Right answer ·{prompt.correct[1:]} against ·{prompt.incorrect[1:]}"


def test_click_on_the_strip_chooses_an_example(page, view):
    page.click("#tab-examples")
    values = faithfulness(view, CMD_ILP, 1)
    box = page.page.locator("#examples-strip").bounding_box()
    page.page.mouse.move(box["x"] + 36, box["y"] + 40)
    page.settle()
    worst = int(np.nanargmin(values))
    assert page.text("#examples-hover") == f"example {worst} · {fixed(values[worst])}"
    page.click_at(box["x"] + 36, box["y"] + 40)
    assert page.settle().text("#example-heading h3") == f"Example {worst}"


@pytest.mark.parametrize("example", [1, 3])
def test_attention_values_under_the_pointer(page, view, example):
    page.click("#tab-attention")
    seen, names = view.runs[0].attention, view.graph.node_names
    page.choose("#attention-example", str(example))
    head = seen.heads[3]
    page.choose("#attention-head", str(head))
    held = page.page.locator("#attention-head option").evaluate_all("all => all.map((one) => one.textContent)")
    assert {words.split(" ")[0] for words in held} == {names[node] for node in seen.heads}
    assert page.text("#attention-said").startswith(names[head])
    clean, corrupted = (seen.pattern(example, head, side) for side in (False, True))
    prompt = view.runs[0].prompts[example]
    box = page.page.locator("[data-map=clean]")
    box.scroll_into_view_if_needed()
    box = box.bounding_box()
    canvas = page.page.locator("[data-map=clean] canvas").bounding_box()
    side = canvas["width"] / len(clean)
    for query, key in ((0, 0), (3, 1), (6, 0), (6, 5), (6, 6)):
        page.page.mouse.move(canvas["x"] + (key + 0.5) * side, canvas["y"] + (query + 0.5) * side)
        page.settle()
        for name, tokens, value in (("clean", prompt.clean, clean), ("corrupted", prompt.corrupted, corrupted)):
            looks, at = (f"'{tokens[place].strip()}' ({place})" for place in (query, key))
            said = f"{looks} looks at {at}: {fixed(value[query, key])}"
            assert page.text(f"[data-reading={name}]") == said
        change = clean[query, key] - corrupted[query, key]
        assert page.text("[data-reading=difference]").endswith(f": {'+' if change > 0 else ''}{fixed(change)}")
        # What is said lies beside the cell, in sight.
        tip, right = page.page.locator("#attention-tip").bounding_box(), canvas["x"] + (key + 1) * side
        assert abs(tip["x"] - right) < 40 or abs(tip["x"] + tip["width"] - right) < 40
        assert tip["y"] + tip["height"] <= 800 and tip["x"] + tip["width"] <= 1280
    # Nobody looks ahead.
    page.page.mouse.move(canvas["x"] + 5.5 * side, canvas["y"] + 0.5 * side)
    assert page.settle().text("[data-reading=clean]") == ""


def test_attention_follows_the_chosen_head(page, view):
    page.click("#tab-attention").click_node("a2.h2")
    assert page.text("#attention-said").split(" ")[0] == "Patterns"  # on example 0
    assert "this is example 1" in page.text("#attention-said")
    expect(page.page.locator("#attention-head")).to_have_value(str(view.graph.node_names.index("a2.h2")))
    page.click_node("a2.h1")
    assert page.text("#attention-said").startswith("Patterns of a2.h1 aren't here; those of ")


def test_the_about_tab_describes_the_run(page, view):
    page.click("#tab-about")
    words = page.text("#panel-about")
    for name, fact in view.runs[0].facts.items():
        assert name in words and fact in words
    # Of the methods, those that are here, each in its combinations too.
    said = page.page.locator("#about-methods dt").all_inner_texts()
    assert said == ["Greedy", "ILP", "Learned"]
    combined = [{"method": name} for name in ("ILP + PNR", "top-n, learned", "Philanthropy")]
    found = page.module("about", "({ methodsOf }, rows) => methodsOf(rows).map(([name]) => name)", combined)
    assert found == ["Top-n", "ILP", "PNR", "Learned"]


def test_examples_say_whether_the_page_has_attention_on_them(page, view):
    """And how to get more of it."""
    page.edit_address("#tab=examples&example=0")
    words = page.text("#example-attention")
    assert words.startswith("The page has no attention on this example; it has on examples 1, 3.")
    assert "discover(attention=N)" in words
    page.click("#example-attention [data-example='3']")
    assert page.text("#example-heading h3") == "Example 3"
    page.click("#example-show")
    expect(page.page.locator("#panel-attention")).to_be_visible()
    expect(page.page.locator("#attention-example")).to_have_value("3")
    assert "discover(attention=N)" not in page.text("#attention-said")
