"""Text of runs and users stays text in Markdown."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from ablations.report.layout import Grid, render

TEXTS = (
    "a|b `c` <script>alert(1)</script>",
    "first\nsecond\n\n# third",
    "&lt;b&gt; &amp; &#60; AT&T; a & b",
    "~~gone~~ *b* _i_ __b__ snake_case [l](http://x) ![i](y)",
    *("# head", "####### no head", "1. one", "27) two", "- item", "+ plus", "---", "==="),
    *("~~~ fence", "``` fence", "> quote", "\\", "a\\|b|", "$x$", "-0.5", "+0.83", "3.5 s"),
    "\x1b[31mred\x1b[0m\x00",
)
PARTS = """{% import layout as to with context %}{% call to.page() %}
{{ to.paragraph(text) }}{{ to.bullets([text, text]) }}{{ to.facts([(text, "x")]) }}
{{ to.table(grid) }}{% endcall %}"""


def shown(markdown: str) -> list[str]:
    """The lines of text of a page; an element that only a mark makes is kept as its tag."""
    html = MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(markdown)
    plain = re.sub(r"</?(h1|p|ul|li|table|thead|tbody|tr|t[hd])( [^>]*)?>", "", html)
    return [unescape(line).strip() for line in plain.splitlines() if line.strip()]


@pytest.mark.parametrize("text", TEXTS)
def test_markdown_shows_text_as_it_was_written(tmp_path: Path, text: str) -> None:
    line = " ".join(text.replace("\x1b[31m", "").replace("\x1b[0m\x00", "").split())
    (tmp_path / "parts.j2").write_text(PARTS)
    grid = Grid.of(["a", "b"], [[text, text]])
    found = render(tmp_path / "parts.j2", layout="markdown.j2", title=text, text=text, grid=grid)
    assert shown(found) == [line, line, line, line, f"{line}: x", "a", "b", line, line]
