"""Score a finished run and translate with it, as a user does."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from experiments.cli import PROGRAM
from experiments.evaluate.trained import translate_stream
from experiments.records.outputs import step_checkpoints
from experiments.records.result import load_result, result_lines
from tests.experiments.conftest import Command
from tests.test_readme import snippet
from transformer.errors import InputError

Said = pytest.CaptureFixture[str]


@pytest.mark.parametrize("options", ["--split valid", "--split test", "--source EN --reference DE"])
def test_evaluate_prints_the_scores_of_the_result(
    options: str, finished: Path, folder: Path, tmp_path: Path, capsys: Said
):
    output = tmp_path / "hypotheses.txt"
    files = {"EN": str(folder / "test.en"), "DE": str(folder / "test.de")}
    words = [files.get(word, word) for word in options.split()]
    assert PROGRAM.run(["evaluate", str(finished), *words, "--output", str(output)]) == 0
    scores, *signatures, settings = capsys.readouterr().out.splitlines()
    result = load_result(finished)
    assert result is not None
    _, valid, test, *expected = result_lines(result)
    split, line = ("valid", valid) if "valid" in options else ("test", test)
    line = line.replace("test", "text") if "EN" in options else line
    assert scores.startswith(f"{line}, per character ")
    assert signatures == expected
    assert settings.endswith(" lines, beam 4, alpha 0.6, 2 checkpoints averaged")
    assert output.read_bytes() == (finished / f"{split}.hypotheses.txt").read_bytes()


def test_damaged_checkpoints_are_not_evaluated(copy: Path, capsys: Said):
    (_, first), (_, last) = step_checkpoints(copy)
    last.write_bytes(b"")
    assert PROGRAM.run(["evaluate", str(copy), "--average", "1"]) == 0
    first.write_bytes(first.read_bytes()[:1_000])
    assert PROGRAM.run(["evaluate", str(copy)]) == 2
    said = f"{copy} has no checkpoint that can be read: train it first\n"
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


def test_line_ends_of_any_kind_are_accepted_but_only_utf8(finished: Path):
    expected = _translate(finished, b"one two\nthree\n")
    for text in (b"one two\r\nthree\r\n", b"one two\nthree", b"one two\r\nthree\n"):
        assert _translate(finished, text) == expected
    assert _translate(finished, b"") == []
    with pytest.raises(InputError, match="standard input, line 3 is not UTF-8"):
        _translate(finished, b"one\ntwo\nth\xe9\nfour\n")
    # separators of Unicode and of ASCII do not end a line
    assert len(_translate(finished, "one\u2028two\x85three\x0cfour\n".encode())) == 1


def test_the_documented_lines_load_a_run_in_python(finished: Path, capsys: Said):
    code = snippet("load_trained").replace("runs/multi30k-seed1", str(finished))
    exec(code.replace("A dog runs.", "one two"), {})
    assert capsys.readouterr().out == f"{_translate(finished, b'one two')}\n"
