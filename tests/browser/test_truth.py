"""A known circuit: which edges of a circuit are true, wrong or missed."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import numpy as np
import pytest
from playwright.sync_api import expect

from edgewise import Circuit

from .sample_views import fixed, mask_of, ranked
from .test_export import lines, saved, texts

ILP, SIZE = 1, 2


@pytest.fixture(scope="module")
def known(view):
    """The view with a known circuit that shares most of ILP's edges at 30 %."""
    mask = mask_of(view, ILP, SIZE).copy()
    draw = np.random.default_rng(3)
    mask[draw.choice(np.flatnonzero(mask), 9, replace=False)] = False
    mask[draw.choice(np.flatnonzero(~mask_of(view, ILP, SIZE)), 7, replace=False)] = True
    return replace(view, truth=Circuit(view.graph, mask), size=SIZE)


@pytest.fixture(scope="module")
def known_path(known, write_page):
    return write_page(known)


@pytest.fixture
def page_with_truth(share_page, known_path):
    return share_page(known_path)


def parts_of(known, size: int) -> dict[str, np.ndarray]:
    """[edge] The true, the wrong and the missed edges, by the name of their list."""
    circuit, truth = mask_of(known, ILP, size), known.truth.mask
    return {"shared": circuit & truth, "here": circuit & ~truth, "there": truth & ~circuit}


@pytest.mark.parametrize("size", [1, SIZE, 3])
def test_edges_are_marked_as_true_wrong_or_missed(page_with_truth, known, size):
    page = page_with_truth.record_lines().size(0).size(size)
    parts = parts_of(known, size)
    for name, mask in parts.items():
        assert page.listed(name) == ranked(known, ILP, mask)
    right, wrong, missed = (parts[name].sum() for name in ("shared", "here", "there"))
    caption = page.text("#caption")
    assert f"{right} true · {wrong} wrong · {missed} missed" in caption
    assert f"precision {fixed(right / (right + wrong))}, recall {fixed(right / (right + missed))}" in caption
    drawn = {line["name"]: line for line in page.lines()}
    assert set(drawn) == set(ranked(known, ILP, parts["shared"] | parts["here"] | parts["there"]))
    assert {name for name, line in drawn.items() if line["dashed"]} == set(ranked(known, ILP, parts["there"]))
    colours = [{drawn[name]["colour"] for name in ranked(known, ILP, mask)} for mask in parts.values()]
    assert len(set().union(*colours)) == sum(map(len, colours)) == sum(bool(mask.any()) for mask in parts.values())


def test_the_comparison_can_be_left_and_kept_in_the_address(page_with_truth, known, open_page, known_path):
    page = page_with_truth.click("#known")
    assert page.listed("all") == ranked(known, ILP, mask_of(known, ILP, SIZE))
    assert page.address_parts() == {"truth": "false"}
    assert open_page(known_path, page.address()).listed("all") == page.listed("all")
    page.click("#known").click("#difference")  # one comparison at a time
    assert page.pressed("#differences") == ["Difference"] and page.address_parts() == {"vs": "Greedy"}
    page.click("#known")
    assert page.pressed("#differences") == ["Known circuit"] and page.address() == ""
    expect(page.page.locator("#other")).to_be_hidden()


def test_an_exported_picture_has_the_known_circuit(page_with_truth, known):
    svg = ElementTree.fromstring(saved(page_with_truth, "#export-svg")[1])
    parts, found = parts_of(known, SIZE), lines(svg)
    dashed = {name for name, path in found.items() if path.get("stroke-dasharray")}
    assert dashed == set(ranked(known, ILP, parts["there"]))
    words = texts(svg)
    assert "compared with the known circuit" in words
    assert {f"true ({parts['shared'].sum()})", f"wrong ({parts['here'].sum()})"} < set(words)
    assert f"dashed: missed ({parts['there'].sum()})" in words


def test_a_page_without_a_known_circuit_offers_no_comparison(page):
    expect(page.page.locator("#known")).to_be_hidden()
    page.edit_address("#truth=true")
    assert page.address() == ""
