"""Mouse and fingers on the circuit."""

from __future__ import annotations

from urllib.parse import quote

import numpy as np
import pytest
from playwright.sync_api import expect

from .sample_views import between, mask_of, number, present, ranked, strength_of

ILP, LEARNED = 1, 2
SAMPLES = np.linspace(0.02, 0.98, 49)


def along(curve) -> np.ndarray:
    """[sample, xy] points on a curve."""
    x0, y0, ax, ay, bx, by, x1, y1 = curve
    t = SAMPLES[:, None]
    parts = (1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t**2 * (1 - t), t**3
    corners = np.array([[x0, y0], [ax, ay], [bx, by], [x1, y1]])
    return sum(part * corner for part, corner in zip(parts, corners, strict=True))


def alone(places, names, far: float = 14) -> dict[str, np.ndarray]:
    """For each edge a point of its line that no other of the lines and no cell is near, where there is one."""
    points = {name: along(places["curves"][name]) for name in names}
    boxes = np.array([[cell["x"], cell["y"], cell["w"] / 2, cell["h"] / 2] for cell in places["cells"].values()])
    found = {}
    for name, ours in points.items():
        away = np.abs(ours[:, None] - boxes[:, :2]) - boxes[:, 2:]
        free = (away > 6).any(-1).all(-1)
        others = np.concatenate([theirs for other, theirs in points.items() if other != name] or [np.full((1, 2), 1e9)])
        room = np.hypot(*(ours[:, None] - others).transpose(2, 0, 1)).min(-1)
        room[~free] = 0
        if room.max() > far:
            found[name] = ours[room.argmax()]
    return found


def on_screen(places, point) -> tuple[float, float]:
    return places["left"] + point[0], places["top"] + point[1]


@pytest.mark.parametrize("row", [ILP, LEARNED])
def test_tip_of_an_edge(page, view, row):
    page.method(row).size(0)
    places, run = page.places(), view.runs[0]
    spots = alone(places, ranked(view, row, mask_of(view, row, 0)))
    assert len(spots) >= 4
    for name, spot in spots.items():
        edge = view.graph.edge_index(name)
        tip = page.hover(*on_screen(places, spot))
        assert tip["name"] == name
        assert tip["score"] == between(run.mean[edge], run.low[edge], run.high[edge])
        stable = "unstable: changes between resamples" if run.unstable[edge] else "stable: every resample agrees"
        assert tip["sign"] == f"{'negative' if run.mean[edge] < 0 else 'positive'}, {stable}"
        assert tip["present"] == f"in {present(view, row, edge)} of 4 sizes of {view.rows[row].method}"
        assert tip.get("chosen by") == (None if row == ILP else f"{number(view.rows[row].value[edge])} (learned)")
    assert page.hover(places["left"] + 2, places["top"] + 2) is None


def test_tip_of_a_node(page, view):
    places, graph = page.places(), view.graph
    mask, strength = mask_of(view, ILP, 1), strength_of(view, ILP)
    words = {"input": "the embedding", "a2.h1": "head 1 of layer 2", "m3": "MLP of layer 3", "logits": "the output"}
    for name, what in words.items():
        cell, node = places["cells"][name], graph.node_names.index(name)
        into, out = mask & (graph.edge_target == node), mask & (graph.edge_source == node)
        tip = page.hover(*on_screen(places, (cell["x"], cell["y"])))
        assert tip["name"] == name and tip["is"] == what
        assert tip["edges"] == f"{into.sum()} in, {out.sum()} out"
        total = f"{number(strength[into | out].sum())}, the sum of the strengths of its edges"
        assert tip["total"] == (total if (into | out).any() else "not in this circuit")


def test_tip_of_an_edge_in_difference_mode(page, view):
    page.size(0).click("#difference")
    places = page.places()
    here, there = mask_of(view, ILP, 0), mask_of(view, 0, 0)
    spots = alone(places, ranked(view, ILP, here | there))
    said = {name: page.hover(*on_screen(places, spot))["circuit"] for name, spot in spots.items()}
    kinds = {(True, False): "only in ILP", (False, True): "only in Greedy", (True, True): "in ILP and Greedy"}
    edges = {name: view.graph.edge_index(name) for name in said}
    assert said == {name: kinds[bool(here[edge]), bool(there[edge])] for name, edge in edges.items()}
    assert len(set(said.values())) >= 2


@pytest.mark.parametrize("name", ["a1.h0", "m1", "input", "logits"])
def test_click_on_a_node_shows_its_edges_ranked(page, view, name):
    page.size(2)
    graph, mask = view.graph, mask_of(view, ILP, 2)
    node = graph.node_names.index(name)
    into, out = mask & (graph.edge_target == node), mask & (graph.edge_source == node)
    assert (into | out).any()
    page.record_lines().click_node(name)
    for side, edges in (("into", into), ("out", out)):
        if {"into": "input", "out": "logits"}[side] != name:
            assert page.listed(side) == ranked(view, ILP, edges)
    assert {line["name"] for line in page.lines()} == set(ranked(view, ILP, into | out))
    assert f"{(into | out).sum()} selected by node" in page.text("#caption")
    assert page.text("#chosen .node").startswith(name)
    page.click_node(name)
    assert page.listed("all") == ranked(view, ILP, mask)


def test_hidden_edges_have_no_tip(page, view):
    page.size(0)
    places = page.places()
    spots = alone(places, ranked(view, ILP, mask_of(view, ILP, 0)))
    name, spot = next(iter(spots.items()))
    ends = {
        view.graph.node_names[node[view.graph.edge_index(name)]]
        for node in (view.graph.edge_source, view.graph.edge_target)
    }
    other = next(node for node in view.graph.node_names if node not in ends)
    assert page.hover(*on_screen(places, spot))["name"] == name
    page.click_node(other)
    tip = page.hover(*on_screen(places, spot))
    assert tip is None or tip["name"] != name


def test_click_on_a_line_chooses_the_edge(page, view):
    page.size(0)
    places = page.places()
    name, spot = next(iter(alone(places, ranked(view, ILP, mask_of(view, ILP, 0))).items()))
    page.click_at(*on_screen(places, spot))
    assert page.settle().text("#chosen [data-tag]") == name
    assert page.address_parts()["edge"] == name
    tag, close = (page.page.locator(f"#chosen [data-tag]{part}").bounding_box() for part in ("", " button"))
    # The name has the tag for itself, up to the button at its end.
    assert close["x"] - tag["x"] > 6 * len(name) and close["x"] + close["width"] <= tag["x"] + tag["width"]
    # What was clicked is not covered by its tip, until one comes back to it.
    assert page.tip() is None and page.hover(*on_screen(places, spot + 1)) is None
    page.page.mouse.move(*on_screen(places, (3, 3)))
    assert page.settle().hover(*on_screen(places, spot))["name"] == name
    page.click_at(*on_screen(places, (3, 3)))
    expect(page.page.locator("#chosen [data-tag]")).to_have_count(0)


def test_the_chosen_edge_has_the_tip_where_lines_cross(page, view):
    page.size(3)
    places, names = page.places(), ranked(view, ILP, mask_of(view, ILP, 3))
    boxes = np.array([[cell["x"], cell["y"], cell["w"] / 2, cell["h"] / 2] for cell in places["cells"].values()])
    for name in names[-8:]:  # weak ones, which others lie over
        points = along(places["curves"][name])
        free = (np.abs(points[:, None] - boxes[:, :2]) - boxes[:, 2:] > 6).any(-1).all(-1)
        page.edit_address(f"#size=1&edge={quote(name)}")
        assert page.hover(*on_screen(places, points[free][len(points[free]) // 2]))["name"] == name


def test_pinned_nodes_keep_their_edges(page, view):
    graph, mask = view.graph, mask_of(view, ILP, 2)
    of = {name: (graph.edge_target == node) | (graph.edge_source == node) for node, name in enumerate(graph.node_names)}
    page.size(2).click_node("a1.h0").click("#pin").click_node("m2").click("#pin").click_node("a3.h1")
    n_shown = (mask & (of["a1.h0"] | of["m2"] | of["a3.h1"])).sum()
    assert f" {n_shown} selected by node" in page.text("#caption")
    assert page.address_parts()["pins"] == "a1.h0 m2"
    # Filters don't hide what is pinned.
    page.click("#chosen [aria-label^='Show all']").click("[data-sign=negative]")
    shown = mask & (of["a1.h0"] | of["m2"] | (view.runs[0].mean < 0))
    assert page.listed("all") == ranked(view, ILP, shown)
    page.click("#chosen [aria-label='Unpin m2']").click_node("a1.h0").click("#pin")
    assert "pins" not in page.address_parts()


def test_wheel_buttons_and_drags_zoom_and_pan(page, view):
    places = page.places()
    cell = places["cells"]["a0.h0"]
    x, y = on_screen(places, (cell["x"], cell["y"]))
    page.page.mouse.move(x, y)
    page.page.mouse.wheel(0, -600)  # which returns before the page has handled it
    page.page.wait_for_function("() => location.hash.includes('zoom')")
    # What lies under the pointer stays there, unless the board's edge is in the way.
    assert page.hover(x, y)["name"] == "a0.h0"
    scale, across, up = map(float, page.address_parts()["zoom"].split())
    assert scale == pytest.approx(np.exp(1.2), rel=1e-3) and across < 0.5 < up
    page.page.mouse.down()
    page.page.mouse.move(x + 70, y - 50, steps=4)
    page.page.mouse.up()
    page.settle()
    moved = np.array([float(part) for part in page.address_parts()["zoom"].split()][1:])
    by = np.array([-70 / places["width"], 50 / places["height"]]) / scale
    wanted = np.clip(np.array([across, up]) + by, 0.5 / scale, 1 - 0.5 / scale)
    np.testing.assert_allclose(moved, wanted, atol=2e-3)
    # A drag is no click.
    expect(page.page.locator("#chosen [data-tag]")).to_have_count(0)
    page.click("#zoom-reset")
    assert "zoom" not in page.address_parts()
    expect(page.page.locator("#zoom-out")).to_be_disabled()
    page.click("#zoom-in").click("#zoom-in").click("#zoom-out")
    assert float(page.address_parts()["zoom"].split()[0]) == pytest.approx(1.5)
    middle = places["width"] / 2, places["height"] / 2
    assert page.hover(*on_screen(places, middle)) == page.hover(*on_screen(places, middle))


def test_tips_follow_the_zoom(page, view):
    """The places of names on the screen follow the zoom."""
    page.click("#zoom-in").click("#zoom-in")
    places = page.places()
    scale = 1.5**2
    cell = places["cells"]["a1.h1"]
    x = places["width"] / 2 + (cell["x"] - places["width"] / 2) * scale
    y = places["height"] / 2 + (cell["y"] - places["height"] / 2) * scale
    assert page.hover(*on_screen(places, (x, y)))["name"] == "a1.h1"


PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True, "device_scale_factor": 2}


@pytest.fixture
def phone(open_page, path):
    return open_page(path, **PHONE)


def test_tap_on_a_node_shows_its_edges(phone, view):
    phone.page.locator("#board").scroll_into_view_if_needed()
    places = phone.places()
    cell = places["cells"]["a1.h0"]
    phone.page.touchscreen.tap(*on_screen(places, (cell["x"], cell["y"])))
    expect(phone.page.locator("#chosen .node")).to_be_visible()
    graph, mask = view.graph, mask_of(view, ILP, 1)
    node = graph.node_names.index("a1.h0")
    assert phone.tip()["name"] == "a1.h0"
    assert phone.text("#chosen .node").startswith("a1.h0")
    assert phone.listed("into") == ranked(view, ILP, mask & (graph.edge_target == node))
    assert phone.listed("out") == ranked(view, ILP, mask & (graph.edge_source == node))


def test_tap_on_a_line_shows_its_tip(phone, view):
    phone.size(0).page.locator("#board").scroll_into_view_if_needed()
    places = phone.places()
    spots = alone(places, ranked(view, ILP, mask_of(view, ILP, 0)), far=10)
    name, spot = next(iter(spots.items()))
    phone.page.touchscreen.tap(*on_screen(places, spot))
    expect(phone.page.locator("#tip")).to_be_visible()
    tip = phone.tip()
    assert tip["name"] == name and "score" in tip
    # A finger covers what is beside it: the tip lies at the bottom, within the window.
    box = phone.page.locator("#tip").bounding_box()
    assert box["x"] >= 0 and box["x"] + box["width"] <= 390 and box["y"] + box["height"] <= 844


def test_nothing_scrolls_sideways(open_page, path):
    page = open_page(path, "#vs=Greedy&node=a1.h0&pins=m0+m1+m2+m3", **PHONE)
    for width in (390, 320, 768, 1024, 1920):
        page.resize(width, 844)
        for tab in ("edges", "examples", "attention", "about"):
            page.page.locator(f"#tab-{tab}").dispatch_event("click")
            wide = page.settle().page.evaluate("document.documentElement.scrollWidth")
            assert wide <= width, (width, tab, wide)
            for part in ("#board", "#size-slider", f"#panel-{tab}"):
                box = page.page.locator(part).bounding_box()
                assert box["x"] >= 0 and box["x"] + box["width"] <= width and box["height"] > 10, (width, part)
