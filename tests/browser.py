"""A real browser for the tests of pages, if installed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@pytest.fixture(scope="module")
def browser() -> Generator[Browser]:
    """Chromium or Chrome as installed on this machine, driven by Playwright.

    While it is open, an event loop runs in this thread, so other modules start their own.
    """
    pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    if not _path():
        pytest.skip(f"no browser on the PATH: {', '.join(_NAMES)}")
    with start_browser() as started:
        yield started


def _path() -> str | None:
    return next(filter(None, map(shutil.which, _NAMES)), None)


@contextmanager
def start_browser() -> Generator[Browser]:
    """A browser while the context is open."""
    from playwright.sync_api import sync_playwright

    sandbox = [] if os.getuid() else ["--no-sandbox"]  # which root cannot use
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=_path(), args=sandbox)
        yield started
        started.close()


def complaints(page: Page, allowed: str) -> list[str]:
    """What goes wrong in a page from now on: errors, and requests to any but ``allowed``."""
    found: list[str] = []
    page.on("pageerror", lambda error: found.append(str(error)))
    page.on("console", lambda line: found.append(line.text) if line.type != "log" else None)

    def check(url: str) -> None:
        if not url.startswith((allowed, "data:")):
            found.append(f"request to {url}")

    page.on("request", lambda request: check(request.url))
    return found


def violations(page: Page) -> list[str]:
    """The rules of axe-core that the page breaks."""
    from axe_playwright_python.sync_playwright import Axe

    response = Axe().run(page).response
    return [
        f"{found['id']}: {found['help']}: {[node['html'][:120] for node in found['nodes'][:3]]}"
        for found in response["violations"]
    ]
