"""Print lines that a terminal breaks at spaces."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap


def line_width() -> int | None:
    """``COLUMNS``, or the width of the terminal in letters; None if output goes elsewhere."""
    if sys.stdout.isatty() or os.environ.get("COLUMNS"):
        return shutil.get_terminal_size().columns
    return None


def wrap(line: str, width: int | None) -> str:
    """Break a line at spaces into lines of at most ``width`` letters, indented by two more.

    A longer word, such as a path, stays whole. None does not limit the width.
    """
    if width is None or len(line) <= width:
        return line
    indent = line[: len(line) - len(line.lstrip())]
    return textwrap.fill(
        line,
        max(width, 20),
        subsequent_indent=f"{indent}  ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def say(*lines: str) -> None:
    """Print lines to standard output, wrapped if that is a terminal."""
    width = line_width()
    for line in lines:
        print(wrap(line, width), flush=True)
