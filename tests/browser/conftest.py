"""Pages of the viewer in the system's Chromium, opened from disk; a page that complains or asks for anything fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from edgewise.report.viewer.page import page_of

from .chromium import SKIPPED, find
from .made_up import made_up
from .seen import Seen

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
WINDOW = {"viewport": {"width": 1280, "height": 800}, "accept_downloads": True}
# Nothing on a page takes longer than a moment, even on a machine with much else to do.
PATIENCE = 10_000
Opener = Callable[..., Seen]


# Of the package, not of the session: while Playwright runs, nothing else in the process can run an event loop.
@pytest.fixture(scope="package")
def browser() -> Iterator[Any]:
    path = find()
    if path is None:
        pytest.skip(SKIPPED)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=path, args=FLAGS)
        yield chromium
        chromium.close()


def _opener(browser: Any, wrong: list[str], contexts: list[Any]) -> Opener:
    def opened(path: Path, address: str = "", **look: Any) -> Seen:
        context = browser.new_context(**WINDOW | look)
        context.set_default_timeout(PATIENCE)
        contexts.append(context)
        url = path.as_uri()
        # Of the context, so that windows which a page opens are watched too.
        context.on("console", lambda message: wrong.append(f"console: {message.text}"))
        context.on("weberror", lambda error: wrong.append(f"error: {error.error}"))
        context.on("dialog", lambda dialog: (wrong.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        context.on("request", lambda request: None if _stays(request.url, url) else wrong.append(request.url))
        page = context.new_page()
        page.goto(url + address)
        page.wait_for_selector("html[data-ready]")
        return Seen(page)

    return opened


def _stays(asked: str, url: str) -> bool:
    """Whether what is asked for is the page itself, or what it holds: data: and blob: never leave it."""
    return asked.split("#")[0] == url or asked[:5] in ("data:", "blob:")


@pytest.fixture(scope="session")
def view():
    """What most pages here show."""
    return made_up()


@pytest.fixture(scope="session")
def written(tmp_path_factory) -> Callable[..., Path]:
    """Writes the page of a view, and gives its path."""
    folder = tmp_path_factory.mktemp("pages")

    def written(view) -> Path:
        path = folder / f"{len(list(folder.iterdir()))}.html"
        path.write_text(page_of(view), "utf-8")
        return path

    return written


@pytest.fixture(scope="session")
def path(view, written) -> Path:
    return written(view)


@pytest.fixture
def open_page(browser: Any) -> Iterator[Opener]:
    """Opens a page from disk, and waits until it is ready; no page may have complained or asked for anything."""
    wrong: list[str] = []
    contexts: list[Any] = []
    yield _opener(browser, wrong, contexts)
    for context in contexts:
        context.close()
    assert not wrong


@pytest.fixture(scope="package")
def opened_once(browser: Any, path: Path) -> Iterator[tuple[Seen, list[str]]]:
    wrong: list[str] = []
    contexts: list[Any] = []
    yield _opener(browser, wrong, contexts)(path), wrong
    for context in contexts:
        context.close()


@pytest.fixture
def page(opened_once: tuple[Seen, list[str]]) -> Iterator[Seen]:
    """The page of `view`, as it opens: the same one for all tests, which an empty address brings back to its start."""
    page, wrong = opened_once
    wrong.clear()
    yield page.anew()
    assert not wrong
