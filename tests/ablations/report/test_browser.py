"""The report in a browser."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

import pytest

from tests.ablations.report.conftest import Reported
from tests.browser import complaints, violations

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


@pytest.fixture
def page(reported: Reported, browser: Browser) -> Generator[Page]:
    """The report in a window of its own, which must not complain about anything."""
    root = reported("table3", drawn=True)
    context = browser.new_context(viewport={"width": 1300, "height": 900})
    page = context.new_page()
    found = complaints(page, root.as_uri())
    page.goto((root / "report.html").as_uri())
    yield page
    context.close()
    assert not found


def names(page: Page) -> list[str]:
    """The rows that the first table shows, from top to bottom."""
    rows = page.locator("#rows > tbody > tr:not(.details):visible > th")
    return [text.strip() for text in rows.all_inner_texts()]


@pytest.mark.slow
def test_rows_are_sorted_filtered_and_opened_and_the_address_keeps_it(page: Page) -> None:
    before = names(page)
    assert before[0] == "base" and before[-1] == "big"
    sort = page.get_by_title("sort by PPL", exact=True)
    sort.click()
    ascending = names(page)
    assert ascending[:2] == ["big", "C-d1024"]
    assert set(ascending[-3:]) == {"C-ff4096", "D-p0.2", "E"}  # which have no figure
    sort.click()
    assert names(page)[:2] == ["C-N2", "D-p0.0"]
    page.reload()
    assert names(page)[:2] == ["C-N2", "D-p0.0"]
    sort.click()
    assert names(page) == before

    texts = {"1.23e+03 ± 5": 1230, "2.3e19": 2.3e19, "100K": 1e5, "2 min 05 s": 125}
    assert page.evaluate("texts => texts.map(number)", [*texts]) == [*texts.values()]
    assert page.evaluate("['step 400 of 1,500', 'C-N8', 'missing'].every((x) => isNaN(number(x)))")

    page.get_by_role("searchbox").first.fill("C- 1.5")
    assert names(page) == ["C-N8", "C-d1024"]
    assert page.get_by_text("2 of 20 rows").is_visible()
    for words, rows in (("big", ["big"]), ("", before)):
        page.evaluate(f"location.hash = 'rows.filter={words}'")
        page.wait_for_function(f"document.querySelector('[type=search]').value === '{words}'")
        assert names(page) == rows

    button = page.get_by_role("button", name="base", exact=True)
    button.focus()
    page.keyboard.press("Enter")
    assert button.get_attribute("aria-expanded") == "true"
    opened = page.locator("#rows-0")
    text = opened.inner_text()
    for words in ("a <script>alert(1)</script> dog", "ein Kund", "</pre><b>bold</b>"):
        assert words in text
    assert opened.get_by_role("link", name="base/seed-1/metrics.csv").is_visible()
    page.reload()
    assert page.locator("#rows-0").is_visible() and not page.locator("#rows-1").is_visible()


@pytest.mark.slow
def test_anyone_can_read_it(page: Page) -> None:
    page.get_by_role("button", name="base", exact=True).click()
    page.locator("#curves").scroll_into_view_if_needed()
    page.locator("#curves .vega-embed svg").wait_for()
    page.locator("li").first.evaluate("item => item.append('x'.repeat(100))")  # a row's long name
    for width, scheme in ((1300, "light"), (390, "dark")):
        page.set_viewport_size({"width": width, "height": 844})
        page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
        assert not violations(page)
        # Only tables and figures scroll sideways, never the page.
        assert page.evaluate("document.documentElement.scrollWidth") <= width
