"""The dashboard in a real browser."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ablations.dashboard import page as dashboard
from ablations.folder import TableFolder
from ablations.report.report import write_report
from ablations.tables.table import Cell
from tests.ablations.dashboard.conftest import serving
from tests.ablations.samples import finish, leave_curve
from tests.ablations.status.samples import training
from tests.browser import complaints, violations
from transformer.config import to_dict
from transformer.files import write_json

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.slow


@pytest.fixture
def page(browser: Browser) -> Generator[Page]:
    """A page that must not complain about anything but a server that was stopped."""
    page = browser.new_page()
    page.set_default_timeout(60_000)
    found = complaints(page, "http://127.0.0.1:")
    yield page
    page.close()
    stopped = ("ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE")
    assert not [text for text in found if not any(word in text for word in stopped)]


def test_a_table_changes_and_the_server_is_restarted(root: Path, page: Page) -> None:
    table = root / "pair-tiny"
    running = table / "base/seed-2.attempt-1"
    with serving(dashboard.Page([root])) as address:
        page.goto(address, wait_until="domcontentloaded")
        page.get_by_text("600/1,500").wait_for()
        curves = page.locator("figure[id$=':curves'] svg")
        curves.wait_for()
        drawn = curves.inner_html()
        panel = page.locator("figure[id$=':panel-perplexity']")
        panel.locator("svg").wait_for()
        (wide,) = panel.evaluate_all("found => found.map(x => x.querySelector('svg').clientWidth)")
        write_json(running / "progress.json", to_dict(training(750)))
        leave_curve(running, {200: 90.0, 400: 40.0, 600: 20.0})
        page.get_by_text("750/1,500").wait_for()
        page.wait_for_function(
            "before => document.querySelector(\"[id$=':curves'] svg\").innerHTML !== before",
            arg=drawn,
        )
        summary = page.get_by_text("attempt 1: exit code 1")
        summary.click()  # opened by hand, it stays open
        assert page.get_by_text("in line 3").is_visible()
        write_json(running / "progress.json", to_dict(training(900)))
        page.get_by_text("900/1,500").wait_for()
        assert page.get_by_text("in line 3").is_visible()
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            assert violations(page) == []
    page.get_by_text("disconnected").wait_for()
    finish(table, Cell("narrow", 2), 7.77)
    with serving(dashboard.Page([root]), int(address.rpartition(":")[2])):
        page.get_by_text("7.77").wait_for()
        page.get_by_text("live", exact=True).wait_for()
        page.set_viewport_size({"width": 390, "height": 844})
        page.wait_for_function(  # the panel takes the width that there is
            "wide => document.querySelector(\"[id$=':panel-perplexity'] svg\").clientWidth < wide",
            arg=wide,
        )
        assert page.evaluate("document.documentElement.scrollWidth") == 390
        assert violations(page) == []


def test_the_report_is_interactive_and_runs_no_other_script(root: Path, browser: Browser) -> None:
    write_report(TableFolder(root / "pair-tiny"))
    path = root / "pair-tiny" / "report.html"
    path.write_text(path.read_text().replace("<main>", "<main><script>foreign = 1</script>"))
    with serving(dashboard.Page([root])) as address, closing(browser.new_page()) as page:
        found = complaints(page, "http://127.0.0.1:")
        page.goto(address)
        page.get_by_role("link", name="report").click()
        page.locator("figure").first.scroll_into_view_if_needed()
        page.locator("figure .vega-embed").first.wait_for()
        page.get_by_role("button", name="base").first.click()
        assert page.evaluate("typeof foreign") == "undefined"
        (refused,) = found
    assert "Content Security Policy" in refused
