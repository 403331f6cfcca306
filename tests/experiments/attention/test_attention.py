"""The command ``attention``, on a run that has learned for forty steps."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from experiments.attention.figure import colour_of
from experiments.cli import PROGRAM
from tests.experiments.samples import copy_of, forget_result

Run = Callable[..., tuple[int, list[str], list[str]]]
SENTENCE = "one two three"


@pytest.fixture
def attention(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command in this process: its exit code, and lines on standard output and error."""

    def run(*arguments: str | Path) -> tuple[int, list[str], list[str]]:
        monkeypatch.setattr(sys, "argv", ["experiments", "attention", *map(str, arguments)])
        code = PROGRAM.run()
        said = capsys.readouterr()
        return code, said.out.splitlines(), said.err.splitlines()

    return run


def test_a_figure_has_the_heads_that_were_asked_for(attention: Run, finished: Path, tmp_path: Path):
    path = tmp_path / "heads.svg"
    options = ("--kind", "cross", "--layer", "1", "--heads", "3,1", "--words")
    translation = ("--translation", "eins zwei")
    assert attention(finished, SENTENCE, *options, *translation, "--output", path) == (
        0,
        [str(path)],
        [],
    )
    drawn = path.read_text(encoding="utf-8")
    assert set(re.findall(r'<line[^>]*stroke="(#\w+)"', drawn)) >= {colour_of(1), colour_of(3)}
    assert colour_of(2) not in drawn
    assert "layer 1, heads 1, 3" in drawn
    for word in ("three", "zwei", "&lt;/s&gt;"):
        assert f">{word}</text>" in drawn


@pytest.mark.parametrize(("ending", "start"), [(".pdf", b"%PDF"), (".png", b"\x89PNG")])
def test_find_lists_heads_and_draws_the_best(
    ending: str, start: bytes, attention: Run, finished: Path, tmp_path: Path
):
    path = tmp_path / f"found{ending}"
    code, lines, problems = attention(finished, SENTENCE, "--find", "--output", path)
    assert (code, problems) == (0, [])
    assert path.read_bytes().startswith(start)
    title, *measures, where = lines
    assert title.startswith("Encoder self-attention") and where == str(path)
    names = [line[:14].strip() for line in measures]
    assert names == ["previous word", "same word", "next word", "far away", "end"]
    assert all(len(re.findall(r"layer [12] head [123]: ", line)) == 3 for line in measures)


def test_the_page_is_written_into_the_run(attention: Run, finished: Path, tmp_path: Path):
    run = copy_of(finished, tmp_path / "run")
    assert attention(run, "one <b>") == (0, [str(run / "attention.html")], [])
    page = (run / "attention.html").read_text(encoding="utf-8")
    assert "<b>" not in page
    assert not re.search(r'(src|href)="(?!data:)', page)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--layer 3", "there is no layer 3: the model has layers 1 to 2"),
        ("--layer 0", "there is no layer 0"),
        ("--heads 1,4", "there is no head 4: each layer has heads 1 to 3"),
        ("--heads 1,x", "--heads is '1,x', but takes numbers such as 1,5"),
        ("--find --layer 1", "--find chooses layers and heads itself"),
        ("--output a.jpg", "a.jpg cannot be written: its name must end in .html, .svg, .pdf, .png"),
        ("--output nowhere/a.svg", "nowhere is not a folder: --output cannot be written"),
        ("--average 3", "holds 2 of the 3 checkpoints to average"),
    ],
)
def test_what_cannot_be_drawn_is_refused_in_one_line(
    options: str,
    said: str,
    attention: Run,
    finished: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.chdir(tmp_path)
    code, lines, (problem,) = attention(finished, SENTENCE, *options.split())
    assert (code, lines) == (2, [])
    assert said in problem
    assert not list(tmp_path.iterdir()) and not list(finished.glob("attention*"))


def test_a_run_that_is_not_finished_is_drawn_only_on_demand(
    attention: Run, finished: Path, tmp_path: Path
):
    run = copy_of(finished, tmp_path / "run")
    forget_result(run)
    code, _, (problem,) = attention(run, SENTENCE)
    assert code == 2
    assert f"{run} is not finished, as it has no result.json: train it to its end, or" in problem
    assert attention(run, SENTENCE, "--average", "1")[0] == 0
    code, _, (problem,) = attention(tmp_path / "none", SENTENCE)
    assert code == 2 and "is not the directory of a run" in problem
