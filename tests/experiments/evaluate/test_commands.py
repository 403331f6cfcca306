"""Scoring a finished run and translating with it, as a user does."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from experiments.evaluate.trained import translate_stream
from experiments.records.checkpoints import step_checkpoints
from experiments.records.result import Result, load_result
from tests.ablations.runs.processes import Finished
from tests.experiments.conftest import Command
from tests.experiments.samples import copy_of
from tests.test_readme import snippet


@pytest.fixture
def result(finished: Path) -> Result:
    found = load_result(finished)
    assert found is not None
    return found


def _printed(ended: Finished) -> list[float]:
    """Both kinds of BLEU and the perplexity."""
    assert ended.code == 0, ended
    first, second, third, _ = ended.stdout.splitlines()
    return [float(first.split()[1]), float(second.split()[2]), float(third.split()[1])]


def test_evaluate_prints_the_scores_of_the_result(finished: Path, result: Result, command: Command):
    ended = command("experiments", "evaluate", finished)
    expected = [result.bleu, result.tokenised_bleu, result.perplexity]
    assert _printed(ended) == pytest.approx(expected, abs=0.006)
    first, second, third, fourth = ended.stdout.splitlines()
    assert first.endswith(f"  {result.bleu_signature}")
    assert second.startswith("tokenised BLEU ")
    assert second.endswith(f"  {result.tokenised_bleu_signature}")
    assert "per word-piece" in third and "per character" in third
    assert fourth == "13 lines, beam 4, alpha 0.6, 2 checkpoints averaged"
    assert {line.split()[0] for line in ended.lines} == {"evaluate"}


@pytest.mark.parametrize("by_files", [False, True])
def test_the_test_set_is_scored_by_its_name_or_its_files(
    by_files: bool, finished: Path, folder: Path, result: Result, command: Command, tmp_path: Path
):
    files = ("--source", folder / "test.en", "--reference", folder / "test.de")
    output = tmp_path / "hypotheses.txt"
    options = files if by_files else ("--split", "test")
    ended = command("experiments", "evaluate", finished, *options, "--output", output)
    expected = [result.test_bleu, result.test_tokenised_bleu, result.test_perplexity]
    assert _printed(ended) == pytest.approx(expected, abs=0.006)
    assert output.read_bytes() == (finished / "test.hypotheses.txt").read_bytes()


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
    options: str, said: str, finished: Path, folder: Path, command: Command
):
    ended = command(
        "experiments", "evaluate", finished, *options.replace("FOLDER", str(folder)).split()
    )
    assert ended.code == 2, ended
    (line,) = ended.lines
    assert said in line
    assert not ended.stdout


@pytest.mark.parametrize("verb", ["evaluate", "translate"])
def test_a_run_without_a_checkpoint_must_be_trained_first(
    verb: str, finished: Path, command: Command, tmp_path: Path
):
    (tmp_path / "config.json").write_bytes((finished / "config.json").read_bytes())
    ended = command("experiments", verb, tmp_path)
    assert ended.code == 2
    assert ended.lines[0].endswith("has no checkpoint yet: train it first")


def test_damaged_checkpoints_are_not_evaluated(finished: Path, command: Command, tmp_path: Path):
    directory = copy_of(finished, tmp_path / "run")
    (_, first), (_, last) = step_checkpoints(directory)
    last.write_bytes(b"")
    ended = command("experiments", "evaluate", directory, "--average", "1")
    assert ended.code == 0, ended
    first.write_bytes(first.read_bytes()[:1_000])
    ended = command("experiments", "evaluate", directory)
    assert ended.code == 2
    assert f"none of the checkpoints of {directory} can be read: train again" in ended.stderr


def test_every_line_is_translated_in_its_place(finished: Path, command: Command):
    sources = ["one two", "", "three", "  ", "four five six", "one two"]
    text = "".join(f"{line}\n" for line in sources)
    ended = command("experiments", "translate", finished, stdin=text.encode())
    assert (ended.code, ended.stderr) == (0, "")
    lines = ended.stdout.split("\n")
    assert lines.pop() == ""
    assert lines[1] == lines[3] == ""
    assert any(lines)
    for source, line in zip(sources, lines, strict=True):
        alone = command("experiments", "translate", finished, stdin=f"{source}\n".encode())
        assert alone.stdout == f"{line}\n"


def test_a_line_that_is_too_long_stays_empty_and_the_others_are_translated(
    finished: Path, command: Command
):
    words, endless = b"seven " * 50_000, b"x" * 2**20
    lines = [b"one two", b"one " * 3_000, b"three", words, endless, b"one two"]
    ended = command("experiments", "translate", finished, stdin=b"\n".join(lines))
    alone = command("experiments", "translate", finished, stdin=b"one two\nthree\n").stdout
    first, second = alone.splitlines()
    assert (ended.code, ended.stdout.splitlines()) == (0, [first, "", second, "", "", first])
    two, four, five = sorted(ended.stderr.splitlines())
    assert two.startswith("warning: line 2 has ") and two.endswith(" 2,048: left empty")
    assert four == "warning: line 4 has more than 65,536 bytes: left empty"
    assert five == "warning: line 5 has more than 65,536 bytes: left empty"


def _translate(directory: Path, text: bytes) -> list[str]:
    return list(translate_stream(directory, io.BytesIO(text)))


def test_line_ends_of_any_kind_are_accepted(finished: Path):
    expected = _translate(finished, b"one two\nthree\n")
    for text in (b"one two\r\nthree\r\n", b"one two\nthree", b"one two\r\nthree\n"):
        assert _translate(finished, text) == expected
    assert _translate(finished, b"") == []
    # separators of Unicode and of ASCII do not end a line
    assert len(_translate(finished, "one\u2028two\x85three\x0cfour\n".encode())) == 1


def test_the_documented_lines_load_a_run_in_python(
    finished: Path, capsys: pytest.CaptureFixture[str]
):
    code = snippet("load_trained").replace("runs/multi30k-seed1", str(finished))
    exec(code.replace("A dog runs.", "one two"), {})
    assert capsys.readouterr().out == f"{_translate(finished, b'one two')}\n"


def test_a_line_that_is_not_utf8_is_named(finished: Path, command: Command):
    ended = command("experiments", "translate", finished, stdin=b"one\ntwo\nth\xe9\nfour\n")
    assert ended.code == 2
    (line,) = ended.lines
    assert "standard input, line 3 is not UTF-8" in line
    assert not ended.stdout
