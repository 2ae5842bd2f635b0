"""Pages of the viewer in the system's Chromium, opened from disk. A page that logs or requests anything fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from edgewise.report.viewer.view import page_of

from .chromium import SKIPPED, find
from .sample_views import sample_view
from .viewer_page import VIEWPORT, ViewerPage

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
# Without motion, colours do not fade from one to the other.
WINDOW = {"viewport": VIEWPORT, "accept_downloads": True, "reduced_motion": "reduce"}
# On a machine that is busy with other work.
TIMEOUT_MS = 180_000
Opener = Callable[..., ViewerPage]


# Of the package, not of the session: while Playwright runs, nothing else in the process can run an event loop.
@pytest.fixture(scope="package")
def browser() -> Iterator[Any]:
    path = find()
    if path is None:
        pytest.skip(SKIPPED)
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=TIMEOUT_MS)
    with sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=path, args=FLAGS, timeout=TIMEOUT_MS)
        yield chromium
        chromium.close()


def _opener(browser: Any, complaints: list[str], contexts: list[Any]) -> Opener:
    def open_page(path: Path, address: str = "", **options: Any) -> ViewerPage:
        context = browser.new_context(**WINDOW | options)
        context.set_default_timeout(TIMEOUT_MS)
        contexts.append(context)
        url = path.as_uri()
        # Of the context, so that windows which a page opens are watched too.
        context.on("console", lambda message: complaints.append(f"console: {message.text}"))
        context.on("weberror", lambda error: complaints.append(f"error: {error.error}"))
        context.on("dialog", lambda dialog: (complaints.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        context.on("request", lambda request: None if _is_local(request.url, url) else complaints.append(request.url))
        page = context.new_page()
        page.goto(url + address)
        page.wait_for_selector("html[data-ready]")
        return ViewerPage(page).settle()

    return open_page


def _is_local(requested: str, url: str) -> bool:
    """Return whether a request is for the page itself or for data that the page holds."""
    return requested.split("#")[0] == url or requested[:5] in ("data:", "blob:")


@pytest.fixture(scope="session")
def view():
    """The view that most pages here show."""
    return sample_view()


@pytest.fixture(scope="session")
def write_page(tmp_path_factory) -> Callable[..., Path]:
    """A function that writes the page of a view and returns its path."""
    folder = tmp_path_factory.mktemp("pages")

    def write_page(view) -> Path:
        path = folder / f"{len(list(folder.iterdir()))}.html"
        path.write_text(page_of(view), "utf-8")
        return path

    return write_page


@pytest.fixture(scope="session")
def path(view, write_page) -> Path:
    return write_page(view)


@pytest.fixture
def open_page(browser: Any) -> Iterator[Opener]:
    """A function that opens a page from disk; the test fails if a page logs or requests anything."""
    complaints: list[str] = []
    contexts: list[Any] = []
    yield _opener(browser, complaints, contexts)
    for context in contexts:
        context.close()
    assert not complaints


@pytest.fixture(scope="package")
def shared_pages(browser: Any) -> Iterator[tuple[Opener, list[str]]]:
    complaints: list[str] = []
    contexts: list[Any] = []
    yield cache(_opener(browser, complaints, contexts)), complaints
    for context in contexts:
        context.close()


@pytest.fixture
def share_page(shared_pages: tuple[Opener, list[str]]) -> Iterator[Opener]:
    """A function that returns the page of a file as it opens. All tests share it: opening a page takes a second."""
    open_once, complaints = shared_pages
    complaints.clear()
    yield lambda path: open_once(path).reset()
    assert not complaints


@pytest.fixture
def page(share_page: Opener, path: Path) -> ViewerPage:
    """The page of `view` as it opens."""
    return share_page(path)
