"""Circuits of (edge, span) pairs: the selector of spans, and on which spans an edge acts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from playwright.sync_api import expect

from edgewise import Graph
from edgewise.graph import NodeGraph, SpanGraph
from edgewise.report.viewer.view import plain_view

from .sample_views import LENGTH, mask_of, number, ranked, sample_view

SPANS = ("S1", "IO", "the <rest>")
ILP, SIZE = 1, 2


@pytest.fixture(scope="module")
def view():
    view = sample_view(SpanGraph(Graph(3, 2, 16), SPANS))
    prompts = tuple(
        replace(prompt, spans=tuple((place + example) // 2 % len(SPANS) for place in range(LENGTH)))
        for example, prompt in enumerate(view.runs[0].prompts)
    )
    return replace(view, runs=(replace(view.runs[0], prompts=prompts),))


@pytest.fixture(scope="module")
def path(view, write_page):
    return write_page(view)


@pytest.fixture
def page(share_page, path):
    return share_page(path).size(SIZE)


def test_sizes_are_shares_of_what_circuits_consist_of(page, open_page, write_page):
    expect(page.page.locator("#curve-plot")).to_contain_text("share of pairs asked for")
    nodes = plain_view(sample_view(NodeGraph(Graph(3, 2, 16))))
    page = open_page(write_page(nodes)).size(SIZE)
    expect(page.page.locator("#curve-plot")).to_contain_text("share of nodes asked for")
    expect(page.page.locator("[data-said=size]").first).to_contain_text("% of the nodes · ")


def test_a_span_can_be_shown_alone(page, view):
    mask = mask_of(view, ILP, SIZE)
    page.record_lines()
    for span, name in enumerate(SPANS):
        page.choose("#span", name)
        at_span = mask & (np.arange(view.graph.n_edges) % len(SPANS) == span)
        assert page.listed("all") == ranked(view, ILP, at_span)
        assert len(page.lines()) == at_span.sum()
        assert page.address_parts()["span"] == name
    page.choose("#span", "all")
    assert "span" not in page.address_parts() and page.listed("all")[0] == ranked(view, ILP, mask)[0]


def test_the_chosen_edge_shows_on_which_spans_it_acts(page, view):
    mask, mean = mask_of(view, ILP, SIZE), view.runs[0].mean
    by_edge = mask.reshape(-1, len(SPANS))
    pair = int(np.argmax(by_edge.sum(1) >= 2)) * len(SPANS) + int(np.argmax(by_edge[np.argmax(by_edge.sum(1) >= 2)]))
    page.edit_address(f"#size=0.3&edge={view.graph.edge_name(pair)}")
    pairs = [other for other in range(pair - pair % len(SPANS), pair - pair % len(SPANS) + len(SPANS)) if mask[other]]
    strongest_first = sorted(pairs, key=lambda other: -abs(mean[other]))
    expected = [f"{SPANS[other % len(SPANS)]} {number(mean[other])}" for other in strongest_first]
    buttons = page.page.locator("#chosen [data-span]")
    assert buttons.all_inner_texts() == expected
    other = next(index for index, each in enumerate(strongest_first) if each != pair)
    buttons.nth(other).click()
    page.settle()
    assert page.address_parts()["edge"] == view.graph.edge_name(strongest_first[other])


def positions(spans, wanted) -> list[str]:
    return [str(place) for place, span in enumerate(spans) if span in wanted]


def expect_marked(page, kind: str, places: list[str]) -> None:
    """Wait until exactly these positions of the prompt have a kind of mark."""
    expect(page.page.locator(f"#example-tokens .pair.{kind}")).to_have_count(len(places))
    for place in places:
        expect(page.page.locator(f"#example-tokens .pair.{kind}[data-position='{place}']")).to_have_count(1)


@pytest.mark.parametrize("example", [0, 3])
def test_the_tokens_at_which_the_chosen_edge_acts_are_marked(page, view, example):
    """Also when another circuit is shown, in which the edge acts at other spans."""
    spans = view.runs[0].prompts[example].spans
    for size in (SIZE, SIZE + 1):
        by_edge = mask_of(view, ILP, size).reshape(-1, len(SPANS))
        edge = int(np.argmax(mask_of(view, ILP, SIZE).reshape(-1, len(SPANS)).sum(1) == 2))
        at = int(np.argmax(by_edge[edge]))
        name = view.graph.edge_name(edge * len(SPANS) + at)
        share = view.rows[ILP].sizes[size].share
        page.edit_address(f"#tab=examples&size={share}&example={example}&edge={name}")
        expect_marked(page, "acts", positions(spans, [at]))
        also = [span for span in np.flatnonzero(by_edge[edge]).tolist() if span != at]
        expect_marked(page, "acts-too", positions(spans, also))
        words = page.page.locator("#example-acts")
        expect(words).to_contain_text(f"Outlined: the tokens of {SPANS[at]}, where {name} acts; dashed:")
        for span in also:
            expect(words).to_contain_text(SPANS[span])
    titles = page.page.locator("#example-tokens [data-position]").evaluate_all("all => all.map((one) => one.title)")
    assert titles == [SPANS[span] for span in spans]


def test_the_tokens_of_the_chosen_span_are_marked(page, view):
    page.click("#tab-examples")
    expect_marked(page, "acts", [])
    expect(page.page.locator("#example-acts")).to_contain_text("Select an edge or a span")
    for span, name in enumerate(SPANS):
        page.choose("#span", name)
        expect_marked(page, "acts", positions(view.runs[0].prompts[0].spans, [span]))
        expect(page.page.locator("#example-acts")).to_have_text(f"Outlined: the tokens of {name}.")


def test_a_pair_outside_the_circuit_is_said_not_to_act(page, view):
    outside = view.graph.edge_name(int(np.argmin(mask_of(view, ILP, SIZE))))
    page.edit_address(f"#tab=examples&size=0.3&edge={outside}")
    expect(page.page.locator("#example-acts")).to_contain_text(f"{outside} doesn't act in this circuit")


def test_prompts_of_earlier_versions_have_no_spans(open_page, write_page):
    page = open_page(write_page(sample_view(SpanGraph(Graph(3, 2, 16), SPANS))), "#tab=examples")
    expect(page.page.locator("#example-tokens .pair[data-position]")).to_have_count(LENGTH)
    expect(page.page.locator("#example-acts")).to_have_count(0)


def test_pages_of_plain_circuits_have_no_spans(share_page, write_page):
    page = share_page(write_page(sample_view()))
    assert page.page.locator("#span").count() == 0 and "pair" not in page.text("#subtitle")
    page.click("#tab-examples")
    expect(page.page.locator("#example-tokens .pair[data-position]")).to_have_count(LENGTH)
    expect(page.page.locator("#example-tokens :is(.acts, .acts-too)")).to_have_count(0)


def test_the_page_counts_pairs(page, view):
    assert f"{view.graph.n_edges} pairs: edges at 3 spans of tokens" in page.text("#subtitle")
    assert "pairs" in page.text("#caption") and "pairs" in page.text("#curve-said")


def test_pairs_are_found_by_their_names(page, view):
    names = ranked(view, ILP, mask_of(view, ILP, SIZE))
    for name in names[:3]:
        start, _, span = name.partition("@")
        page.fill("#search", name)
        assert page.listed("all") == [name]
        page.fill("#search", f"{start}@")
        assert page.listed("all") == [other for other in names if other.startswith(f"{start}@")]
        page.fill("#search", f"@{span.lower()}")
        assert page.listed("all") == [other for other in names if other.endswith(f"@{span}")]
    page.fill("#search", "")
