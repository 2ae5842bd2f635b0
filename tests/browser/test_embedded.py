"""The page inside a frame of another page, as in a notebook: it has no address of its own and no access outside."""

from __future__ import annotations

import base64
import html
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from edgewise.report.viewer.view import page_of

from .sample_views import mask_of, ranked
from .viewer_page import ViewerPage

SOURCES = {
    "srcdoc": lambda page: f'srcdoc="{html.escape(page)}"',
    "data": lambda page: f'src="data:text/html;charset=utf-8;base64,{base64.b64encode(page.encode()).decode()}"',
    "sandbox": lambda page: f'sandbox="allow-scripts" srcdoc="{html.escape(page)}"',
}


@pytest.fixture
def embed(browser: Any, view) -> Iterator[Callable[[str, int, int], ViewerPage]]:
    """A function that opens the page in a frame of this kind and size; the test fails if anything is logged."""
    context = browser.new_context(viewport={"width": 1300, "height": 900}, reduced_motion="reduce")
    complaints: list[str] = []
    context.on("console", lambda message: complaints.append(message.text))
    context.on("weberror", lambda error: complaints.append(str(error.error)))
    text = page_of(view)

    def embed(kind: str, width: int, height: int) -> ViewerPage:
        outer = context.new_page()
        frame = f"<iframe {SOURCES[kind](text)} style='width:{width}px;height:{height}px;border:0'></iframe>"
        outer.set_content(f"<title>notebook</title><body>{frame}")
        inner = outer.frames[1] if len(outer.frames) > 1 else outer.wait_for_event("frameattached")
        inner.wait_for_selector("html[data-ready]")
        return ViewerPage(inner).settle()

    yield embed
    context.close()
    assert complaints == []


@pytest.mark.parametrize("kind", list(SOURCES))
def test_an_embedded_page_works_without_an_address(embed, view, kind):
    page = embed(kind, 1200, 700)
    page.size(2).click("#difference").click("#tab-examples").click("#tab-edges").click("#difference")
    assert page.listed("all") == ranked(view, 1, mask_of(view, 1, 2))
    page.address()  # waits until the page has tried to write its address
    page.click("#copy-link")
    page.page.wait_for_function("() => document.getElementById('said').textContent !== ''")
    assert "open viewer.html by itself" in page.text("#said")
    assert page.page.parent_frame.title() == "notebook"


@pytest.mark.parametrize("size", [(1200, 300), (1000, 450), (1000, 700), (700, 400)])
def test_an_embedded_page_fits_its_frame(embed, size):
    """It fills the frame, or scrolls within it; it never scrolls sideways, and no part is cut off."""
    width, height = size
    page = embed("srcdoc", width, height)
    wide, tall = page.page.evaluate("[document.documentElement.scrollWidth, document.documentElement.scrollHeight]")
    assert wide <= width and tall >= height
    boxes = page.page.evaluate(BOXES)
    assert boxes["board"]["height"] >= 200
    assert boxes["foot"]["bottom"] <= boxes["stage"]["bottom"] + 1 <= tall + 1
    if height >= 700:
        assert tall == height


BOXES = """() => Object.fromEntries(["board", "foot", "stage"].map((id) => {
  const { height, bottom } = document.getElementById(id).getBoundingClientRect();
  return [id, { height, bottom: bottom + scrollY }];
}))"""


def test_the_page_does_not_reach_outside_its_frame(page):
    modules = page.page.evaluate("Object.values(JSON.parse(document.querySelector('[type=importmap]').text).imports)")
    sources = [base64.b64decode(source.partition(",")[2]).decode() for source in modules]
    assert len(sources) > 20
    for name in ("window.parent", "parent.", "window.top", "postMessage", "localStorage", "sessionStorage", "opener"):
        assert not [text for text in sources if f" {name}" in text or f"({name}" in text]
