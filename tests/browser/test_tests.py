"""The tests of a circuit: superfluous edges, and what the circuit loses without an edge or a node."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import numpy as np
import pytest

from edgewise.report.viewer.view import with_tests

from .sample_views import mask_of, number, ranked
from .test_export import lines, saved, texts

ILP, SIZE = 1, 2


@pytest.fixture(scope="module")
def tested(view):
    """The view with tests of ILP's circuit at 30 %, pruned: every third edge is superfluous."""
    circuit = view.rows[ILP].circuits[SIZE].prune()
    rows = [*view.rows]
    rows[ILP] = replace(rows[ILP], circuits=(*rows[ILP].circuits[:SIZE], circuit, *rows[ILP].circuits[SIZE + 1 :]))
    draw = np.random.default_rng(5)
    inner = [name for name in circuit.nodes if name not in ("input", "logits")]
    record = {
        "edge_effects": {name: int(draw.integers(-20, 200)) / 512 for name in circuit.edges},
        "node_effects": {name: int(draw.integers(1, 200)) / 512 for name in inner},
        "superfluous": list(circuit.edges[::3]),
    }
    return with_tests(replace(view, rows=tuple(rows), size=SIZE), record), record


def is_dash_dot(dash: list[float]) -> bool:
    return len(dash) == 4


def test_superfluous_edges_and_effects_of_the_tested_circuit(open_page, write_page, tested):
    view, record = tested
    page = open_page(write_page(view)).record_lines().size(0).size(SIZE)
    superfluous = set(record["superfluous"])
    assert {line["name"] for line in page.lines() if is_dash_dot(line["dash"])} == superfluous
    assert page.text("#list-all .head .interval") == "if cut"
    for name in ranked(view, ILP, mask_of(view, ILP, SIZE))[:12]:
        words = page.text(f'#list-all [data-edge="{name}"] .effect')
        assert words == number(record["edge_effects"][name], 2) + (" superfluous" if name in superfluous else "")
    node = next(iter(record["node_effects"]))
    page.click_node(node)
    loss = f"if cut, the circuit loses {number(record['node_effects'][node])} of faithfulness"
    assert loss in page.text("#chosen")
    edge = next(name for name in ranked(view, ILP, mask_of(view, ILP, SIZE)) if name in superfluous)
    page.press("Escape").click(f'[data-edge="{edge}"]')
    words = f"loses {number(record['edge_effects'][edge])} of faithfulness; superfluous by the test of minimality"
    assert words in page.text("#chosen")
    svg = ElementTree.fromstring(saved(page, "#export-svg")[1])
    broken = {name for name, path in lines(svg).items() if is_dash_dot((path.get("stroke-dasharray") or "").split())}
    assert broken == superfluous and "dashes and dots: superfluous" in texts(svg)
    # Tests say nothing about circuits of other sizes.
    page.press("Escape").size(SIZE - 1)
    assert not any(is_dash_dot(line["dash"]) for line in page.lines())
    assert page.text("#list-all .head .interval") == "interval" and "if cut" not in page.text("#list-all")
