"""The names of files and folders in the directory of a table or a search."""

from __future__ import annotations

PLAN_FILE = "table.json"
SEARCH_FILE = "search.json"
MARKDOWN_FILE = "report.md"
HTML_FILE = "report.html"


def trial_name(number: int) -> str:
    """A search's trial, which is also its folder."""
    return f"trial-{number:04}"
