"""The report in a browser."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ablations.report.report import write_report
from experiments.records.outputs import samples_path
from tests.ablations.samples import fill_table3
from tests.browser import complaints, violations
from transformer.files import write_json

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

SAMPLE = {
    "chrf": 61.5,
    "source": "a <script>alert(1)</script> dog",
    "reference": "ein Hund",
    "translation": "ein Kund",
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report with curves, translations and a log in its first row."""
    root = tmp_path_factory.mktemp("table3")
    fill_table3(root)
    run = root / "base" / "seed-1"
    write_json(samples_path(run, "valid"), {"samples": [SAMPLE]})
    (run / "log.txt").write_text("step 1\n</pre><b>bold</b>\n")
    (run / "metrics.csv").write_text("step,loss\n100,,,,,1.5,9.1\n200,,,,,1.4,8.2\n")
    write_report(root)
    return root


@pytest.fixture
def page(root: Path, browser: Browser) -> Generator[Page]:
    """The report in a window of its own, which must not complain about anything."""
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


def test_rows_are_sorted_and_the_address_keeps_it(page: Page) -> None:
    before = names(page)
    assert before[0] == "base" and before[-1] == "big"
    page.get_by_title("sort by PPL", exact=True).click()
    ascending = names(page)
    assert ascending[:2] == ["big", "C-d1024"]
    assert set(ascending[-3:]) == {"C-ff4096", "D-p0.2", "E"}  # which have no figure
    page.get_by_title("sort by PPL", exact=True).click()
    assert names(page)[:2] == ["C-N2", "D-p0.0"]
    page.reload()
    assert names(page)[:2] == ["C-N2", "D-p0.0"]
    page.get_by_title("sort by PPL", exact=True).click()
    assert names(page) == before


def test_rows_are_filtered_by_words(page: Page) -> None:
    page.get_by_role("searchbox").first.fill("C- 1.5")
    assert names(page) == ["C-N8", "C-d1024"]
    assert page.get_by_text("2 of 20 rows").is_visible()
    page.evaluate("location.hash = 'rows.filter=big'")
    page.wait_for_function("document.querySelector('[type=search]').value === 'big'")
    assert names(page) == ["big"]


def test_a_row_opens_by_keyboard_to_what_is_known_of_it(page: Page) -> None:
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


@pytest.mark.parametrize(("width", "scheme"), [(1300, "light"), (390, "dark")])
def test_anyone_can_read_it(root: Path, browser: Browser, width: int, scheme: str) -> None:
    context = browser.new_context(
        viewport={"width": width, "height": 844},
        color_scheme="dark" if scheme == "dark" else "light",
    )
    page = context.new_page()
    page.goto(f"{(root / 'report.html').as_uri()}#rows.open=base")
    page.locator("#curves").scroll_into_view_if_needed()
    page.locator("#curves .vega-embed svg").wait_for()
    assert not violations(page)
    # Only tables and figures scroll sideways, never the page.
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    context.close()
