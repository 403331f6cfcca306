"""Exporting a run and using the export, as a user does."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import pytest

from experiments.cli import PROGRAM
from tests.experiments.conftest import Command
from tests.experiments.samples import copy_of


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


FORMATS = {
    "ctranslate2": ["config.json", "model.bin", "shared_vocabulary.json", "vocabulary.model"],
    "safetensors": ["config.json", "data.json", "model.safetensors", "vocabulary.model"],
}
formats = pytest.mark.parametrize("format", FORMATS)


@formats
def test_an_export_is_written_beside_the_checkpoints_and_replaced(
    format: str, finished: Path, command: Command, tmp_path: Path
):
    directory = copy_of(finished, tmp_path / "run")
    (directory / f".{format}.part").mkdir()  # left by an export that was killed
    for _ in range(2):
        ended = command("experiments", "export", directory, "--format", format)
        assert (ended.code, ended.stderr) == (0, "")
        assert ended.stdout.startswith(f"{directory / format}  0.")
        assert names(directory / format) == FORMATS[format]
    assert names(directory) == sorted([*names(finished), format])


@pytest.mark.parametrize("source", ["run", "safetensors"])
@pytest.mark.parametrize("engine", ["torch", "ctranslate2"])
def test_every_engine_and_export_gives_the_results_of_the_run(
    source: str, engine: str, finished: Path, command: Command, tmp_path: Path
):
    directory = finished
    if source == "safetensors":
        directory = tmp_path / "export"
        command("experiments", "export", finished, "--format", "safetensors", "--output", directory)
    output = tmp_path / "hypotheses.txt"
    options = ("--engine", engine, "--output", output)
    ended = command("experiments", "evaluate", directory, *options)
    assert ended.code == 0, ended
    assert output.read_bytes() == (finished / "valid.hypotheses.txt").read_bytes()
    text = b"one two\n\nthree\n"
    found = command("experiments", "translate", directory, "--engine", engine, stdin=text)
    assert found == command("experiments", "translate", finished, stdin=text)


def test_a_check_counts_equal_translations(finished: Path, command: Command, tmp_path: Path):
    arguments = ("experiments", "export", finished, "--format", "ctranslate2")
    ended = command(*arguments, "--output", tmp_path / "export", "--check", "5")
    assert ended.code == 0, ended
    assert ended.stdout.splitlines()[-1].startswith("5 lines: 5 the same, 0 ties, 0 differ; torch")


def test_a_quantized_export_is_smaller_and_has_a_name_of_its_own(
    finished: Path, command: Command, tmp_path: Path
):
    directory = copy_of(finished, tmp_path / "run")
    for options in ((), ("--quantization", "int8"), ("--quantization", "float16")):
        ended = command("experiments", "export", directory, "--format", "ctranslate2", *options)
        assert ended.code == 0, ended
    full, int8, half = (
        (directory / name / "model.bin").stat().st_size
        for name in ("ctranslate2", "ctranslate2-int8", "ctranslate2-float16")
    )
    assert int8 < full and half < 0.6 * full


@formats
def test_a_full_disk_leaves_nothing_behind(
    format: str, finished: Path, command: Command, tmp_path: Path
):
    output = tmp_path / "export"
    arguments = ("experiments", "export", finished, "--format", format, "--output", output)
    ended = command(*arguments, largest_file=1_000)
    assert ended.code == 2, ended
    assert len(ended.lines) == 1
    assert not output.exists()
    assert not [path for path in tmp_path.iterdir() if "export" in path.name]


@formats
def test_only_an_export_is_overwritten(
    format: str, finished: Path, command: Command, tmp_path: Path
):
    output = tmp_path / "export"
    output.mkdir()
    (output / "thesis.tex").write_text("years of work")
    ended = command("experiments", "export", finished, "--format", format, "--output", output)
    assert ended.code == 2
    (line,) = ended.lines
    assert f"{output} exists and is no earlier export of this kind" in line
    assert names(output) == ["thesis.tex"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--format", "safetensors", "--quantization", "int8"), "are for --format ctranslate2"),
        (("--format", "ctranslate2", "--check", "0"), "check is 0, but must be at least 1"),
        (("--format", "ctranslate2", "--average", "3"), "holds 2 of the 3 checkpoints to average"),
        (("--format", "safetensors", "--output", "nowhere/x"), "nowhere is not a folder"),
    ],
)
def test_what_cannot_be_exported_is_refused_in_one_line(
    arguments: tuple[str, ...], said: str, finished: Path, command: Command
):
    ended = command("experiments", "export", finished, *arguments)
    assert ended.code == 2, ended
    (line,) = ended.lines
    assert said in line
    assert not ended.stdout


def test_an_export_for_ctranslate2_is_not_taken_for_a_run(
    finished: Path, command: Command, tmp_path: Path
):
    output = tmp_path / "export"
    command("experiments", "export", finished, "--format", "ctranslate2", "--output", output)
    for verb in ("evaluate", "translate"):
        ended = command("experiments", verb, output)
        assert ended.code == 2
        (line,) = ended.lines
        assert "is an export for CTranslate2: give the run, with --engine ctranslate2" in line


@pytest.mark.parametrize(
    "arguments",
    [
        ("export", "--format", "ctranslate2"),
        ("export", "--format", "safetensors"),
        ("evaluate", "--engine", "ctranslate2"),
        ("translate", "--engine", "ctranslate2"),
    ],
)
def test_a_missing_extra_is_reported_with_how_to_install_it(
    arguments: tuple[str, ...],
    finished: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    for library in ("ctranslate2", "safetensors"):
        monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)
    verb, *options = arguments
    monkeypatch.setattr(sys, "argv", ["experiments", verb, str(finished), *options])
    assert PROGRAM.run() == 2
    said = capsys.readouterr()
    (line,) = said.err.splitlines()
    assert "is not installed: pip install '.[export]'" in line
    assert not said.out
