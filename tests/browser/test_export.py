"""The picture as a file."""

from __future__ import annotations

import base64
import struct
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import numpy as np

from .sample_views import between, fixed, letters, mask_of, percent, ranked

SVG = "{http://www.w3.org/2000/svg}"
ILP = 1


def saved(page, button: str) -> tuple[str, bytes]:
    """The name and the bytes of what a button saves."""
    with page.page.expect_download() as download:
        page.page.locator(button).click()
    with open(download.value.path(), "rb") as file:
        return download.value.suggested_filename, file.read()


def texts(svg) -> list[str]:
    return [text.text for text in svg.iter(f"{SVG}text")]


def lines(svg) -> dict[str, ElementTree.Element]:
    """The lines of edges, by name."""
    return {path.find(f"{SVG}title").text: path for path in svg.iter(f"{SVG}path")}


def test_the_svg_has_the_circuit_with_labels(page, view):
    name, data = saved(page, "#export-svg")
    svg = ElementTree.fromstring(data)
    assert svg.tag == f"{SVG}svg" and name == "tiny-ioi-ilp-cmd-10pct.svg"
    mask, size = mask_of(view, ILP, 1), view.rows[ILP].sizes[1]
    found = lines(svg)
    assert set(found) == set(ranked(view, ILP, mask))
    mean = view.runs[0].mean
    dashed = {edge for edge, path in found.items() if path.get("stroke-dasharray")}
    assert dashed == set(ranked(view, ILP, mask & (mean < 0)))
    ends = dict(zip(view.graph.edge_names, letters(view.graph), strict=True))
    assert len({path.get("stroke") for path in found.values()}) == len({ends[edge] for edge in found})
    widths = [float(found[edge].get("stroke-width")) for edge in ranked(view, ILP, mask)]
    assert (np.diff(widths) <= 0).all() and widths[0] > widths[-1]
    words = texts(svg)
    assert words[0] == view.title
    faithful = f"faithfulness {between(size.faithfulness, size.low, size.high, fixed)}"
    assert words[1] == f"ILP · CMD · {percent(size.share)} · {size.kept} edges · {faithful}"
    assert set(view.graph.node_names) < set(words) and {f"L{layer}" for layer in range(4)} < set(words)
    assert {"into q", "into logits", "dashed: negative score", "weak score", "strong score"} < set(words)
    # Legible in a column of a paper, half as wide as the picture; lines shine through heads that have none.
    sizes = [float(text.get("font-size", 15)) for text in svg.iter(f"{SVG}text")]
    assert min(sizes) >= 10
    outside = [rect for rect in svg.iter(f"{SVG}rect") if rect.get("opacity") not in (None, "1")]
    used = {name for edge in found for name in (edge.split("->")[0], edge.split("->")[1].split("<")[0])}
    assert len(outside) == len(set(view.graph.node_names) - used) > 0
    # Every label lies in the picture.
    _, _, width, height = map(float, svg.get("viewBox").split())
    for rect in svg.iter(f"{SVG}rect"):
        if rect.get("x"):
            assert float(rect.get("x")) >= 0 and float(rect.get("x")) + float(rect.get("width")) <= width
            assert float(rect.get("y")) + float(rect.get("height")) <= height


def test_the_svg_shows_the_current_picture(page, view):
    page.method(2).size(2).click("#difference").click_node("logits").click("[data-sign=negative]")
    name, data = saved(page, "#export-svg")
    svg = ElementTree.fromstring(data)
    here, there = mask_of(view, 2, 2), mask_of(view, 0, 2)
    shown = (here | there) & (view.graph.edge_target == view.graph.n_nodes - 1) & (view.runs[0].mean < 0)
    assert shown.any() and set(lines(svg)) == set(ranked(view, 0, shown))
    words = " ".join(texts(svg))
    assert "Learned · CMD" in words and "edges of logits alone" in words and "Greedy · CMD" in words
    assert f"only in Learned ({(here & ~there).sum()})" in words and f"in both ({(here & there).sum()})" in words
    assert name == "tiny-ioi-learned-cmd-vs-greedy-30pct.svg"


def test_the_svg_has_the_theme_of_the_page(page):
    """Dark pages give dark pictures."""
    ground = []
    for _ in range(2):
        svg = ElementTree.fromstring(saved(page, "#export-svg")[1])
        ground.append(svg.find(f"{SVG}rect").get("fill"))
        page.press("t")
    assert [int(colour[1:3], 16) > 128 for colour in ground] in ([True, False], [False, True])


def test_the_png_is_the_svg_at_twice_its_size(page):
    svg = ElementTree.fromstring(saved(page, "#export-svg")[1])
    name, data = saved(page, "#export-png")
    assert name == "tiny-ioi-ilp-cmd-10pct.png"
    width, height = struct.unpack(">II", data[16:24])
    assert (width, height) == tuple(round(2 * float(svg.get(side))) for side in ("width", "height"))
    # As the browser itself reads it: lines, cells and words on a plain ground.
    colours, translucent = page.page.evaluate(COLOURS, base64.b64encode(data).decode())
    assert colours > 100 and translucent == 0


COLOURS = """async (base64) => {
  const bytes = Uint8Array.from(atob(base64), (one) => one.charCodeAt(0));
  const image = await createImageBitmap(new Blob([bytes], { type: "image/png" }));
  const context = new OffscreenCanvas(image.width, image.height).getContext("2d");
  context.drawImage(image, 0, 0);
  const { data } = context.getImageData(0, 0, image.width, image.height);
  const pixels = new Uint32Array(data.buffer);
  return [new Set(pixels).size, pixels.filter((pixel) => pixel >>> 24 < 255).length];
}"""


NAMES = {
    "</text><script>alert(1)</script>": None,
    "a & b \"c\" 'd' ]]>": None,
    "\x01\x08\x0b bell": r"\u0001\u0008\u000b bell",
    "\ud800 half": "\ufffd half",
    "語 \u202edrow": r"語 \u202edrow",
}


def test_names_are_text_in_an_svg(open_page, write_page, view):
    rows = tuple(replace(row, method=name, measure="CMD") for row, name in zip(view.rows, NAMES, strict=True))
    page = open_page(write_page(replace(view, title="".join(NAMES), rows=rows, shown=0)))
    for row, (name, shown) in enumerate(NAMES.items()):
        svg = ElementTree.fromstring(saved(page.method(row), "#export-svg")[1])
        title, about, *_ = texts(svg)
        assert about.startswith(f"{shown or name} · CMD")
        assert title == "".join(shown or name for name, shown in NAMES.items())
        tags = {element.tag.removeprefix(SVG) for element in svg.iter()}
        assert tags == {"svg", "title", "rect", "text", "g", "path", "line"}


def test_the_link_is_copied(open_page, path):
    page = open_page(path, permissions=["clipboard-read", "clipboard-write"])
    page.size(2).address()
    words = page.record_messages().click("#copy-link").message()
    # A page from disk is only where the file is.
    assert words.startswith("The link to exactly this picture is copied. ") and "send it, too" in words
    copied = page.page.evaluate("navigator.clipboard.readText()")
    assert copied == page.page.url and copied.endswith("#size=0.3")


def test_large_graphs_have_readable_pictures(page):
    """Of any shape, cells don't overlap and names fit them."""
    for layers, heads in ((1, 1), (2, 4), (12, 12), (30, 9), (48, 25)):
        cells = page.module("graph", LAID_OUT, [layers, heads, 900, 700])
        boxes = np.array([[cell["x"], cell["y"], cell["w"], cell["h"]] for cell in cells])
        apart = np.abs(boxes[:, None, :2] - boxes[:, :2]) - (boxes[:, None, 2:] + boxes[:, 2:]) / 2
        overlap = (apart < 0).all(-1) & ~np.eye(len(boxes), dtype=bool)
        assert not overlap.any(), (layers, heads)
        assert (boxes[:, 0] - boxes[:, 2] / 2 >= 0).all() and (boxes[:, 1] - boxes[:, 3] / 2 >= 0).all()
        assert (boxes[:, 0] + boxes[:, 2] / 2 <= 900).all() and (boxes[:, 1] + boxes[:, 3] / 2 <= 700).all()


LAID_OUT = """async ({ layoutOf }, [layers, heads, width, height]) => {
  const { graphOf } = await import("edgewise/graph.js");
  const graph = graphOf({ n_layers: layers, n_heads: heads, parallel: false, edges: 0, held: 0 });
  return layoutOf(graph, width, height).cells;
}"""
