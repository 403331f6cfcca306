"""What a run or a user wrote is text in Markdown, whatever marks it holds."""

from __future__ import annotations

import re
from html import unescape

import pytest
from markdown_it import MarkdownIt

from ablations.report.page import Column, Facts, Part, Table, Text, make_page
from ablations.report.plain import to_markdown

TEXTS = (
    "a|b `c` <script>alert(1)</script>",
    "first\nsecond\n\n# third",
    "&lt;b&gt; &amp; &#60; AT&T; a & b",
    "~~gone~~ *b* _i_ __b__ snake_case [l](http://x) ![i](y)",
    *("# head", "####### no head", "1. one", "27) two", "- item", "+ plus", "---", "==="),
    *("~~~ fence", "``` fence", "> quote", "\\", "a\\|b|", "$x$", "-0.5", "+0.83", "3.5 s"),
    "\x1b[31mred\x1b[0m\x00",
)


def shown(markdown: str) -> list[str]:
    """The lines of text of a page; an element that only a mark makes is kept as its tag."""
    html = MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(markdown)
    plain = re.sub(r"</?(h1|p|ul|li|table|thead|tbody|tr|t[hd])( [^>]*)?>", "", html)
    return [unescape(line).strip() for line in plain.splitlines() if line.strip()]


@pytest.mark.parametrize("text", TEXTS)
def test_markdown_shows_text_as_it_was_written(text: str) -> None:
    line = " ".join(text.replace("\x1b[31m", "").replace("\x1b[0m\x00", "").split())
    parts: list[tuple[Part, list[str]]] = [
        (Text((text,)), [line]),
        (Text((text, text), is_list=True), [line, line]),
        (Facts(((text, "x"),)), [f"{line}: x"]),
        (
            Table(columns=(Column("a"), Column("b")), rows=((text, text),)),
            ["a", "b", line, line],
        ),
    ]
    for part, expected in parts:
        assert shown(to_markdown(make_page(text, ("", [part])))) == [line, *expected]
