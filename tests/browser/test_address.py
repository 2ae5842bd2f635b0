"""Keys, search, and the address that holds what is shown."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from playwright.sync_api import expect

from .sample_views import circuit_alone, mask_of, ranked

ILP = 1
# What a reader can tell two pictures apart by.
PICTURE = """() => ({
  caption: document.getElementById("caption").innerText,
  chosen: document.getElementById("chosen").innerText,
  said: document.getElementById("curve-said").innerText,
  pressed: [...document.querySelectorAll("[aria-pressed=true]")].map((one) => one.innerText),
  panel: document.querySelector("[role=tabpanel]:not([hidden])").innerText,
  search: document.getElementById("search").value,
  least: document.getElementById("least").value,
  all: document.getElementById("all").checked,
  size: document.getElementById("size-slider").value,
  theme: document.documentElement.dataset.theme,
  tab: document.querySelector("[role=tab][aria-selected=true]").innerText,
  lines: document.querySelector("#curve-plot:not([hidden])")?.innerHTML,
})"""


def picture(page):
    return page.settle().page.evaluate(PICTURE)


def pixels(page) -> bytes:
    return page.page.evaluate("document.getElementById('graph').toDataURL()")


def test_every_key_of_the_help_works(page, view):
    page.press("?")
    expect(page.page.locator("#help")).to_be_visible()
    keys = " ".join(page.page.locator("#help kbd").all_inner_texts()).split()
    tried = set("? Esc ← → ↑ ↓ m d / p + − 0 l t f".split())
    assert set(keys) == tried, "a key that isn't tried here, or that the help doesn't tell of"
    page.press("Escape")
    expect(page.page.locator("#help")).to_be_hidden()

    shown = page.page.locator("#size-slider")
    page.press("ArrowRight")
    expect(shown).to_have_value("2")
    page.press("ArrowLeft", "ArrowLeft", "ArrowLeft")
    expect(shown).to_have_value("0")
    page.press("ArrowDown")
    assert page.pressed("#methods") == ["Learned"]
    page.press("ArrowDown")  # from the last to the first
    assert page.pressed("#methods") == ["Greedy"]
    page.press("ArrowUp", "ArrowUp")
    assert page.pressed("#methods") == ["ILP"]
    page.press("m")
    assert page.pressed("#metrics") == ["CPR"] and page.pressed("#methods") == ["ILP"]
    page.press("m", "d")
    assert page.pressed("#metrics") == ["CMD"]
    expect(page.page.locator("#other")).to_be_visible()
    page.press("d")
    expect(page.page.locator("#other")).to_be_hidden()
    page.press("/")
    expect(page.page.locator("#search")).to_be_focused()
    page.type("mdlt")  # letters go into the field, and do nothing else
    assert page.settle().pressed("#metrics") == ["CMD"]
    expect(page.page.locator("#search")).to_have_value("mdlt")
    page.press("Escape")
    expect(page.page.locator("#search")).to_have_value("")
    page.record_messages().press("p")
    assert page.message() == "Select a node first, then pin it"
    page.click_node("m1").press("p")
    assert page.text("#pin") == "Unpin"
    page.press("p")
    assert page.text("#pin") == "Pin"
    page.press("+", "+", "-")
    assert page.address_parts()["zoom"].split()[0] == "1.5"
    page.press("0")
    assert "zoom" not in page.address_parts()
    expect(page.page.locator("[data-axis=log]")).to_have_attribute("aria-pressed", "true")
    page.press("l")
    expect(page.page.locator("[data-axis=linear]")).to_have_attribute("aria-pressed", "true")
    light = page.page.evaluate("document.documentElement.dataset.theme")
    page.press("t")
    assert {light, page.page.evaluate("document.documentElement.dataset.theme")} == {"light", "dark"}
    page.press("f")
    page.page.wait_for_function("() => document.fullscreenElement !== null")
    page.press("f")
    page.page.wait_for_function("() => document.fullscreenElement === null")
    page.press("Escape")
    expect(page.page.locator("#chosen [data-tag]")).to_have_count(0)


def test_escape_clears_the_selection_and_then_everything(page, view):
    first = picture(page)["caption"]
    page.press("d").click("[data-sign=negative]").click_node("m1").press("+", "p", "Escape")
    assert set(page.address_parts()) == {"vs", "zoom", "sign", "pins"}
    page.press("Escape")
    assert page.address_parts() == {} and picture(page)["caption"] == first


def test_keys_with_a_modifier_do_nothing(page):
    before = picture(page)
    page.press("Control+ArrowRight", "Alt+m", "Control+0", "Meta+d")
    assert picture(page) == before


def test_search_finds_a_node_by_name(page, view):
    page.press("/").type("a2.h")
    graph = view.graph
    heads = [graph.node_names.index(f"a2.h{head}") for head in range(3)]
    of = np.isin(graph.edge_source, heads) | np.isin(graph.edge_target, heads)
    # While one types, the picture shows what is meant so far.
    assert page.settle().listed("all") == ranked(view, ILP, of & mask_of(view, ILP, 1))
    page.type("1").press("Enter")
    assert page.text("#chosen .node").startswith("a2.h1") and page.address_parts() == {"node": "a2.h1"}
    names = page.page.locator("#names option").evaluate_all("all => all.map((one) => one.value)")
    assert tuple(names) == tuple(graph.node_names)


def test_search_finds_an_edge_outside_the_circuit(page, view):
    outside = ranked(view, ILP, ~mask_of(view, ILP, 1))[0]
    page.press("/").type(outside).record_lines().press("Enter")
    assert page.text("#chosen [data-tag]") == outside
    assert outside in {line["name"] for line in page.lines()}
    assert page.address_parts() == {"edge": outside, "search": outside}
    page.press("Escape")
    assert page.address_parts() == {} and page.listed("all") == ranked(view, ILP, mask_of(view, ILP, 1))


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("a1.h1", lambda source, end: "a1.h1" in (source, end.split("<")[0])),
        ("A1.H1 -> ", None),
        ("m0->logits", lambda source, end: (source, end) == ("m0", "logits")),
        ("input → a3.h0", lambda source, end: source == "input" and end.split("<")[0] == "a3.h0"),
        ("a0->m", lambda source, end: source.startswith("a0") and end.startswith("m")),
        ("<k>", lambda source, end: end.endswith("<k>")),
        ("->logits", lambda source, end: end == "logits"),
    ],
)
def test_a_search_shows_the_matching_edges(page, view, words, meant):
    if meant is None:
        meant = lambda source, end: source == "a1.h1"  # noqa: E731
    page.size(3).fill("#search", words)
    matching = np.array([meant(*name.split("->")) for name in view.graph.edge_names])
    assert page.settle().listed("all") == ranked(view, ILP, matching)


def test_a_search_without_results_says_so(page):
    page.press("/").type("a99.h1")
    assert "0 selected by node, search and filters" in page.settle().text("#caption")
    page.press("Enter", "Escape")
    assert page.address_parts() == {}


def many_changes(page):
    page.method(2).size(2).click("#difference").click_node("a1.h0").click("#pin").click_node("a2.h2")
    page.click("[data-letter=k]").click("[data-sign=negative]").click("[data-colour=sign]").fill("#least", "30")
    page.page.locator("#all").check()
    page.settle()
    page.press("+", "l", "t").click("#tab-attention")
    page.choose("#attention-example", "3")
    page.fill("#search", "a")
    return page.settle()


def test_the_address_restores_the_same_picture(page, open_page, path):
    before = picture(many_changes(page))
    address = page.address()
    assert {"method", "metric", "size", "vs", "node", "pins", "into", "sign", "least", "all", "colour", "tab"} <= set(
        page.address_parts()
    )
    other = open_page(path, address)
    assert picture(other) == before
    assert other.address() == address
    page.page.mouse.move(0, 0)
    assert pixels(page.settle()) == pixels(other)


def test_the_initial_page_has_an_empty_address(page):
    page.size(2)
    assert page.address_parts() == {"size": "0.3"}
    page.size(1)
    assert page.address() == ""


def test_an_edited_address_moves_the_page(page, view):
    page.edit_address("#method=Greedy&metric=CPR&size=0.3&node=logits")
    assert page.pressed("#methods") == ["Greedy"] and page.pressed("#metrics") == ["CPR"]
    graph, mask = view.graph, mask_of(view, 3, 2)
    assert page.listed("into") == ranked(view, 3, mask & (graph.edge_target == graph.n_nodes - 1))


def test_a_circuit_beside_a_run_has_an_address(open_page, write_page, view):
    alone = circuit_alone()
    rows = (*view.rows, *(replace(row, run=1) for row in alone.rows))
    path = write_page(replace(view, runs=(*view.runs, *alone.runs), rows=rows))
    page = open_page(path).click("[data-metric='']")
    assert page.pressed("#methods") == ["mine"]
    other = open_page(path, page.address())
    assert other.pressed("#methods") == ["mine"] and picture(other) == picture(page)
    page.click("#difference")
    assert picture(open_page(path, page.address())) == picture(page)


HOSTILE = [
    "#", "#%", "#%00%ff%fe", "#&&&===", "#method=%3Cscript%3E", "#into=", "#into=none", "#least=1", "#size=-1",
    "#size=NaN&least=-Infinity&example=1e999&zoom=NaN+NaN+NaN", "#size=1e308", "#search=->->->", "#example=-5",
    "#node=__proto__&edge=constructor&pins=toString+hasOwnProperty&head=input&tab=__proto__&vs=__proto__",
    "#zoom=1+0+0", "#zoom=24+1+1", "#zoom=1e-9+0.5+0.5", "#edge=->", "#edge=a0.h0->", "#edge=a0.h0->a0.h0<q>",
    "#method=Greedy&metric=nothing&vs=Greedy&vsmetric=nothing", "#theme=purple&sign=0&colour=1",
    "#method=" + "x" * 5000, "#search=" + "%5C(%5B*" * 100, "#" + "node=a0.h0&" * 500,
]  # fmt: skip


@pytest.mark.parametrize("address", HOSTILE)
def test_any_address_leaves_a_working_page(page, view, address):
    page.edit_address(address).press("Escape", "Escape", "0").method(0)
    page.click_node("logits")
    assert page.text("#chosen .node").startswith("logits")
    size = int(page.page.locator("#size-slider").input_value())
    into = mask_of(view, 0, size) & (view.graph.edge_target == view.graph.n_nodes - 1)
    assert page.listed("into") == ranked(view, 0, into)


@pytest.mark.parametrize("address", ["#zoom=1+0+0", "#zoom=2+0+1"])
def test_an_address_cannot_move_the_circuit_out_of_view(page, address):
    page.edit_address(address)
    scale, across, up = map(float, page.address_parts().get("zoom", "1 0.5 0.5").split())
    assert 0.5 / scale <= across <= 1 - 0.5 / scale and 0.5 / scale <= up <= 1 - 0.5 / scale


def test_random_states_round_trip_through_their_addresses(page, view):
    """fromAddress undoes toAddress for every state, and toAddress of any words is an address that stays as it is."""
    draw = random.Random(0)
    graph = view.graph
    node = lambda: draw.choice([None, draw.randrange(graph.n_nodes)])  # noqa: E731
    head = lambda: draw.choice([None, graph.n_attention_sources(draw.randrange(4)) + draw.randrange(3)])  # noqa: E731
    states = []
    for _ in range(300):
        row = draw.randrange(5)
        other = draw.choice([None, *(set(range(5)) - {row})])
        states.append({
            "row": row, "size": draw.randrange(4), "other": other, "truth": False, "notes": [],
            "node": node(), "edge": draw.choice([None, draw.randrange(graph.n_edges)]),
            "pins": draw.sample(range(graph.n_nodes), draw.randrange(4)),
            "search": draw.choice(["", "a1", "a0.h0->m1", " +&=#%\u00e9\U0001f600<b>", "100% + 1"]),
            "letters": [draw.random() < 0.7 for _ in range(5)], "sign": draw.choice(["both", "positive", "negative"]),
            "least": draw.choice([0, 0.01, 0.6310, 1]), "all": draw.random() < 0.5,
            "colour": draw.choice(["reader", "sign"]), "tab": draw.choice(["edges", "examples", "attention", "about"]),
            "example": draw.randrange(6), "head": head(), "linear": draw.random() < 0.5,
            "theme": draw.choice(["auto", "light", "dark"]),
            "zoom": draw.choice([{"k": 1, "x": 0.5, "y": 0.5}, {"k": 2, "x": 0.3125, "y": 0.75}]),
        })  # fmt: skip
    back = page.module("state", ROUND_TRIP, states)
    assert back == states
    words = [random_words(draw) for _ in range(300)]
    assert page.module("state", SETTLED, words) == []


def random_words(draw: random.Random) -> str:
    names = ["method", "metric", "size", "vs", "vsmetric", "node", "edge", "pins", "search", "into", "sign", "least"]
    names += ["all", "colour", "tab", "example", "head", "axis", "theme", "zoom", "name", "note", "truth"]
    names += ["", "x", "__proto__"]
    values = ["Greedy", "ILP", "CPR", "0.3", "1e5", "-1", "a1.h1", "a1.h1 name mover", "a0.h0->m1", "m1 m1"]
    values += ["q", "true", "\ud800", "%", "NaN"]
    parts = (f"{draw.choice(names)}={draw.choice(values)}" for _ in range(draw.randrange(8)))
    return "#" + draw.choice(["&", "&&", ";", "#"]).join(parts)


ROUND_TRIP = """async ({ fromAddress, toAddress }, states) => {
  const { load } = await import("edgewise/data.js");
  const view = await load(document);
  const names = Object.keys(states[0]);
  return states.map((state) => {
    const found = fromAddress(view, toAddress(view, state));
    return Object.fromEntries(names.map((name) => [name, found[name]]));
  });
}"""
SETTLED = """async ({ fromAddress, toAddress }, addresses) => {
  const { load } = await import("edgewise/data.js");
  const view = await load(document);
  return addresses.filter((address) => {
    const once = toAddress(view, fromAddress(view, address));
    return toAddress(view, fromAddress(view, once)) !== once;
  });
}"""
