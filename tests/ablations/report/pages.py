"""Reading a report's HTML."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

_SVG = "{http://www.w3.org/2000/svg}"


def parsed(root: Path) -> ElementTree.Element:
    """The HTML file without its scripts, which is XML but for its doctype and tags left open."""
    text = (root / "report.html").read_text(encoding="utf-8")
    text = re.sub(r"<script>.*?</script>", "", text, flags=re.DOTALL)
    return ElementTree.fromstring(re.sub(r"<!doctype html>|<(meta|link) [^>]*>", "", text).strip())


def drawn(root: Path) -> dict[str, ElementTree.Element]:
    """The figures that the page shows before its script has run, by name."""
    figures = parsed(root).iter("figure")
    return {figure.attrib["id"]: next(figure.iter(f"{_SVG}svg")) for figure in figures}


def marks(svg: ElementTree.Element, kind: str) -> list[ElementTree.Element]:
    """What a figure shows as ``symbol``, ``line``, ``rect`` or ``rule``, without its axes."""
    groups = [x for x in svg.iter(f"{_SVG}g") if f"mark-{kind} role-mark" in x.get("class", "")]
    return [mark for group in groups for mark in group]


def tables(root: Path) -> list[ElementTree.Element]:
    """The page's tables, without those that a row opens to."""
    return parsed(root).findall("./body/main/div/table")


def rows_of(root: Path, table: int = 0) -> list[list[str]]:
    """The cells of the rows of a table."""
    found = tables(root)[table].findall("tbody/tr")
    rows = [row for row in found if row.get("class") != "details"]
    return [["".join(cell.itertext()) for cell in row] for row in rows]
