"""Scoring a finished run and translating with it, as a user does."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from experiments.cli import PROGRAM
from experiments.evaluate.trained import translate_stream
from experiments.records.checkpoints import step_checkpoints
from experiments.records.result import load_result, result_lines
from tests.experiments.conftest import Command
from tests.experiments.samples import copy_of
from tests.test_readme import snippet

Said = pytest.CaptureFixture[str]


@pytest.mark.parametrize("split", ["valid", "test"])
def test_evaluate_prints_the_scores_of_the_result(
    split: str, finished: Path, tmp_path: Path, capsys: Said
):
    output = tmp_path / "hypotheses.txt"
    words = ["evaluate", str(finished), "--split", split, "--output", str(output)]
    assert PROGRAM.run(words) == 0
    scores, *signatures, settings = capsys.readouterr().out.splitlines()
    result = load_result(finished)
    assert result is not None
    _, valid, test, *expected = result_lines(result)
    assert scores.startswith(f"{test if split == 'test' else valid}, per character ")
    assert signatures == expected
    assert settings.endswith(" lines, beam 4, alpha 0.6, 2 checkpoints averaged")
    assert output.read_bytes() == (finished / f"{split}.hypotheses.txt").read_bytes()


def test_a_text_of_ones_own_is_scored(finished: Path, folder: Path, capsys: Said):
    files = ["--source", str(folder / "test.en"), "--reference", str(folder / "test.de")]
    said: list[list[str]] = []
    for options in (files, ["--split", "test"]):
        assert PROGRAM.run(["evaluate", str(finished), *options]) == 0
        said.append([line[5:] for line in capsys.readouterr().out.splitlines()])
    assert said[0] == said[1]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--split tset", "unknown split 'tset': did you mean 'test'?"),
        ("--average 3", "holds 2 of the 3 checkpoints to average"),
        ("--length-penalty nan", "length_penalty is nan, but must be at least 0"),
        ("--source FOLDER/test.en", "--source and --reference belong together"),
        ("--source FOLDER/test.en --reference nowhere", "nowhere"),
        ("--source FOLDER/test.en --reference FOLDER/valid.de", "has 11 lines but"),
        ("--output nowhere/file", "nowhere is not a folder"),
    ],
)
def test_what_cannot_be_scored_is_refused_in_one_line(
    options: str, said: str, finished: Path, folder: Path, capsys: Said
):
    words = options.replace("FOLDER", str(folder)).split()
    assert PROGRAM.run(["evaluate", str(finished), *words]) == 2
    printed = capsys.readouterr()
    (line,) = printed.err.splitlines()
    assert said in line and not printed.out


def test_damaged_checkpoints_are_not_evaluated(finished: Path, tmp_path: Path, capsys: Said):
    directory = copy_of(finished, tmp_path / "run")
    (_, first), (_, last) = step_checkpoints(directory)
    last.write_bytes(b"")
    assert PROGRAM.run(["evaluate", str(directory), "--average", "1"]) == 0
    first.write_bytes(first.read_bytes()[:1_000])
    assert PROGRAM.run(["evaluate", str(directory)]) == 2
    said = f"{directory} has no checkpoint that can be read: train it first\n"
    assert capsys.readouterr().err.endswith(said)


def _translate(directory: Path, text: bytes) -> list[str]:
    return list(translate_stream(directory, io.BytesIO(text)))


def test_every_line_is_translated_in_its_place(finished: Path, command: Command):
    sources = ["one two", "", "three", "  ", "four five six", "one two"]
    text = "".join(f"{line}\n" for line in sources)
    ended = command("experiments", "translate", finished, stdin=text.encode())
    assert (ended.code, ended.stderr) == (0, "")
    lines = ended.stdout.split("\n")
    assert lines.pop() == ""
    assert lines[1] == lines[3] == ""
    alone = [_translate(finished, f"{source}\n".encode()) for source in sources]
    assert [[line] for line in lines] == alone


def test_a_line_that_is_too_long_stays_empty_and_the_others_are_translated(finished: Path):
    words, endless = b"seven " * 50_000, b"x" * 2**20
    lines = [b"one two", b"one " * 3_000, b"three", words, endless, b"one two"]
    with pytest.warns(UserWarning) as warned:
        found = _translate(finished, b"\n".join(lines))
    first, second = _translate(finished, b"one two\nthree\n")
    assert found == [first, "", second, "", "", first]
    four, five, two = (str(warning.message) for warning in warned)
    assert two.startswith("line 2 has ") and two.endswith(" 2,048: left empty")
    assert four == "line 4 has more than 65,536 bytes: left empty"
    assert five == "line 5 has more than 65,536 bytes: left empty"


def test_line_ends_of_any_kind_are_accepted(finished: Path):
    expected = _translate(finished, b"one two\nthree\n")
    for text in (b"one two\r\nthree\r\n", b"one two\nthree", b"one two\r\nthree\n"):
        assert _translate(finished, text) == expected
    assert _translate(finished, b"") == []
    # separators of Unicode and of ASCII do not end a line
    assert len(_translate(finished, "one\u2028two\x85three\x0cfour\n".encode())) == 1


def test_the_documented_lines_load_a_run_in_python(finished: Path, capsys: Said):
    code = snippet("load_trained").replace("runs/multi30k-seed1", str(finished))
    exec(code.replace("A dog runs.", "one two"), {})
    assert capsys.readouterr().out == f"{_translate(finished, b'one two')}\n"


def test_a_line_that_is_not_utf8_is_named(finished: Path, command: Command):
    ended = command("experiments", "translate", finished, stdin=b"one\ntwo\nth\xe9\nfour\n")
    assert ended.code == 2
    (line,) = ended.lines
    assert "standard input, line 3 is not UTF-8" in line
    assert not ended.stdout
