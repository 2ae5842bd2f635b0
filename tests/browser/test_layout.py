"""What fits where: panels within a click, labels that hide nothing, filters on a phone, and exports like the screen."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest

from .test_export import LAID_OUT, SVG, saved
from .test_pointer import PHONE


@pytest.mark.parametrize("window", [(1100, 700), (1100, 560), (1280, 720), (1440, 900)])
def test_one_click_shows_each_panel(page, window):
    """Its tab and most of it are in sight, whatever the height, and so is the slider."""
    height = window[1]
    page.resize(*window)
    for tab, content in (("examples", "#examples-strip"), ("attention", "#attention-head"), ("edges", "#list-nodes")):
        button = page.page.locator(f"#tab-{tab}").bounding_box()
        assert button["y"] + button["height"] <= 0.5 * height, tab
        page.click(f"#tab-{tab}")
        box = page.page.locator(content).bounding_box()
        assert box["y"] + min(box["height"], 40) <= height, tab
        slider = page.page.locator("#size-slider").bounding_box()
        assert slider["y"] + slider["height"] <= height, tab
        if tab != "edges":
            panel = page.page.locator(f"#panel-{tab}").bounding_box()
            assert panel["y"] <= 0.6 * height, tab


def test_all_filters_are_in_sight_on_a_phone(open_page, path):
    page = open_page(path, **PHONE)
    for part in ("[data-letter]", "[data-sign]", "[data-colour]", "#least", "#all"):
        for one in page.page.locator(f"#filters {part}").all():
            box = one.bounding_box()
            assert box["x"] >= 0 and box["x"] + box["width"] <= 390, part


def test_tabs_are_in_sight_on_a_phone_and_lead_to_their_panels(open_page, path):
    page = open_page(path, **PHONE)
    for tab in ("examples", "attention", "about", "edges"):
        button = page.page.locator(f"#tab-{tab}").bounding_box()
        assert button["x"] >= 0 and button["x"] + button["width"] <= 390 and button["y"] + button["height"] <= 844
        page.click(f"#tab-{tab}")
        top = page.page.locator(f"#panel-{tab}").bounding_box()["y"]
        assert 0 <= top <= 0.7 * 844


def boxes_of(svg: ElementTree.Element) -> dict[str, dict[str, float]]:
    """The cells of an exported picture, by name."""
    groups = [group for group in svg.iter(f"{SVG}g") if group.find(f"{SVG}rect") is not None]
    return {
        group.find(f"{SVG}text").text: {
            name: float(group.find(f"{SVG}rect").get(name)) for name in ("x", "y", "width", "height")
        }
        for group in groups
    }


def test_an_exported_picture_has_the_proportions_of_the_screen(page):
    boxes, cells = boxes_of(ElementTree.fromstring(saved(page, "#export-svg")[1])), page.places()["cells"]
    assert set(boxes) == set(cells)
    export_row, screen_row = boxes["a0.h0"]["y"] - boxes["a1.h0"]["y"], cells["a0.h0"]["y"] - cells["a1.h0"]["y"]
    export_column, screen_column = boxes["a0.h1"]["x"] - boxes["a0.h0"]["x"], cells["a0.h1"]["x"] - cells["a0.h0"]["x"]
    for name, box in boxes.items():
        assert box["height"] / export_row == pytest.approx(cells[name]["h"] / screen_row, abs=0.03)
        if name.startswith("a"):
            assert box["width"] / export_column == pytest.approx(cells[name]["w"] / screen_column, abs=0.15)


@pytest.mark.parametrize("board", [(800, 450), (1124, 1189)])
@pytest.mark.parametrize("shape", [(4, 4), (12, 12)])
def test_lines_between_heads_and_their_mlp_do_not_run_along_cells(page, board, shape):
    cells = page.module("graph", LAID_OUT, [*shape, *board])
    top, bottom = cells[1]["y"] - cells[1]["h"] / 2, cells[shape[1] + 1]["y"] + cells[shape[1] + 1]["h"] / 2
    above = cells[shape[1] + 2]["y"] + cells[shape[1] + 2]["h"] / 2
    mlp_top = cells[shape[1] + 1]["y"] - cells[shape[1] + 1]["h"] / 2
    assert top - bottom >= 3 and mlp_top - above >= 3


def test_an_exported_picture_highlights_the_chosen_edge(page):
    name = page.listed("all")[3]
    page.click(f"[data-edge='{name}']")
    svg = ElementTree.fromstring(saved(page, "#export-svg")[1])
    paths = {path.find(f"{SVG}title").text: path for path in svg.iter(f"{SVG}path")}
    opacity = {edge: float(path.get("stroke-opacity")) for edge, path in paths.items()}
    assert opacity.pop(name) == 1 and max(opacity.values()) <= 0.35
    assert list(paths)[-1] == name


@pytest.mark.parametrize("height", [560, 720, 900])
def test_the_words_of_the_chart_do_not_overlap(page, height):
    page.resize(1100, height).edit_address("#method=Greedy&metric=CPR")
    boxes = page.page.locator("#curve-plot text").evaluate_all(
        "all => all.map((one) => [one.textContent, one.getBoundingClientRect()])"
    )
    words = [(text, box) for text, box in boxes if text]
    for place, (text, box) in enumerate(words):
        for other, near in words[:place]:
            apart = box["left"] >= near["right"] or near["left"] >= box["right"]
            assert apart or box["top"] >= near["bottom"] - 1 or near["top"] >= box["bottom"] - 1, (text, other)
