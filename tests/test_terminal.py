"""Lines that a terminal breaks at spaces."""

from __future__ import annotations

import pytest

from transformer.terminal import say, wrap

LINE = (
    "  BLEU, sign of Δ compared with the paper's, 16 row(s): agree beyond noise 14, within noise 2."
)


@pytest.mark.parametrize("width", [23, 41, 79])
def test_a_line_is_broken_at_spaces_and_indented(width: int) -> None:
    lines = wrap(LINE, width).split("\n")
    assert max(map(len, lines)) <= width < len(LINE)
    assert " ".join(" ".join(lines).split()) == LINE.strip()
    assert lines[0].startswith("  BLEU") and all(x.startswith("    ") for x in lines[1:])


def test_a_path_stays_whole() -> None:
    path = "/a-folder/with/a-name/that-is/longer/than-a-line/report.html"
    assert wrap(f"report: {path}, and more", 31).split("\n") == [
        "report:",
        f"  {path},",
        "  and more",
    ]


def test_lines_stay_whole_unless_a_terminal_shows_them(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    say(LINE, "")
    assert capsys.readouterr().out == f"{LINE}\n\n"
    monkeypatch.setenv("COLUMNS", "41")
    say(LINE)
    assert capsys.readouterr().out == f"{wrap(LINE, 41)}\n"
