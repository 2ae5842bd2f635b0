"""Pages of the viewer in the system's Chromium, opened from disk; a page that complains or asks for anything fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from .chromium import SKIPPED, find

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
Opener = Callable[..., Any]


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    path = find()
    if path is None:
        pytest.skip(SKIPPED)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=path, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture
def open_page(browser: Any) -> Iterator[Opener]:
    """Opens a page from disk, and waits until it is ready; no page may have complained or asked for anything."""
    contexts, wrong = [], []

    def opened(path: Path, address: str = "", **look: Any) -> Any:
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 800}, "accept_downloads": True} | look)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: wrong.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: wrong.append(f"error: {error}"))
        url = path.as_uri()
        # The page itself, and what it holds: data: and blob: never leave it.
        page.on(
            "request",
            lambda r: None if r.url.split("#")[0] == url or r.url[:5] in ("data:", "blob:") else wrong.append(r.url),
        )
        page.goto(url + address)
        page.wait_for_selector("html[data-ready]")
        return page

    yield opened
    for context in contexts:
        context.close()
    assert not wrong
