"""The pictures of README and docs, by ``make pictures``."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from ablations.dashboard.page import Page
from ablations.folder import TableFolder
from ablations.report.report import write_report
from ablations.status.status import DirectoryReader
from ablations.status.view import block
from tests.ablations.dashboard.conftest import serving
from tests.browser import start_browser

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "experiments" / "results" / "table3-small"
PICTURES = ROOT / "docs" / "pictures"
_WIDTH, _HEIGHT = 1420, 940
_LINES = 30


def main() -> None:
    """Draw the report, its learning curves, the dashboard and the terminal view."""
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, start_browser() as browser:
        os.chdir(folder)  # so that the pictures show a path as users have it
        table = Path("runs") / RESULTS.name
        shutil.copytree(RESULTS, table)
        write_report(TableFolder(table))
        shutil.copyfile(table / "figures" / "curves.svg", PICTURES / "curves.svg")
        _picture(browser, f"{(table / 'report.html').resolve().as_uri()}#rows.open=C-N2", "report")
        with serving(Page([table])) as address:
            _picture(browser, address, "dashboard")
        terminal = Console(record=True, width=80, file=(Path(folder) / "shown").open("w"))
        terminal.print(block(DirectoryReader(table).read(), _LINES))
        terminal.save_svg(str(PICTURES / "status.svg"), title=f"status {table} --watch")


def _picture(browser: Browser, address: str, name: str) -> None:
    page = browser.new_page(viewport={"width": _WIDTH, "height": _HEIGHT})
    page.goto(address)
    page.wait_for_timeout(3_000)  # until figures are drawn
    page.screenshot(path=PICTURES / f"{name}.png")
    page.close()


if __name__ == "__main__":
    main()
