"""Circuits of (edge, span) pairs: the selector of spans, and on which spans an edge acts."""

from __future__ import annotations

import numpy as np
import pytest

from edgewise import Graph
from edgewise.graph import SpanGraph

from .sample_views import mask_of, number, ranked, sample_view

SPANS = ("S1", "IO", "the <rest>")
ILP, SIZE = 1, 2


@pytest.fixture(scope="module")
def view():
    return sample_view(SpanGraph(Graph(3, 2, 16), SPANS))


@pytest.fixture
def page(open_page, write_page, view):
    return open_page(write_page(view)).size(SIZE)


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


def test_pages_of_plain_circuits_have_no_spans(open_page, write_page):
    page = open_page(write_page(sample_view()))
    assert page.page.locator("#span").count() == 0 and "pair" not in page.text("#subtitle")


def test_the_page_counts_pairs(page, view):
    assert f"{view.graph.n_edges} pairs: edges at 3 spans of tokens" in page.text("#subtitle")
    assert "pairs" in page.text("#caption") and "pairs" in page.text("#curve-said")
