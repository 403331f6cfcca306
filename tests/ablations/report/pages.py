"""Reading a report's HTML."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree


def parsed(root: Path) -> ElementTree.Element:
    """The HTML file, which is XML but for its doctype and two tags that stay open."""
    text = (root / "report.html").read_text(encoding="utf-8")
    return ElementTree.fromstring(re.sub(r"<!doctype html>|<meta [^>]*>", "", text).strip())


def rows_of(root: Path, table: int = 0) -> list[list[str]]:
    """The cells of the rows of a table, the first one's without a number."""
    rows = list(parsed(root).iter("table"))[table].findall("tbody/tr")
    return [["".join(cell.itertext()) for cell in row] for row in rows]
