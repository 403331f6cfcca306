"""Exporting a run and using the export, as a user does."""

from __future__ import annotations

import sys
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
    format: str, finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    directory = copy_of(finished, tmp_path / "run")
    (directory / f".{format}.part").mkdir()  # left by an export that was killed
    for _ in range(2):
        assert PROGRAM.run(["export", str(directory), "--format", format]) == 0
        assert capsys.readouterr().out.startswith(f"{directory / format}  0.")
        assert names(directory / format) == FORMATS[format]
    if format == "ctranslate2":
        assert PROGRAM.run(["evaluate", str(directory / format)]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.endswith(
            "is an export for CTranslate2: give the run, with --engine ctranslate2"
        )
    assert names(directory) == sorted([*names(finished), format])


@pytest.mark.parametrize("source", ["run", "safetensors"])
@pytest.mark.parametrize("engine", ["torch", "ctranslate2"])
def test_every_engine_and_export_gives_the_results_of_the_run(
    source: str, engine: str, finished: Path, tmp_path: Path
):
    directory, output = finished, tmp_path / "hypotheses.txt"
    if source == "safetensors":
        directory = tmp_path / "export"
        words = ["--format", "safetensors", "--output", str(directory)]
        assert PROGRAM.run(["export", str(finished), *words]) == 0
    options = ["--engine", engine, "--output", str(output)]
    assert PROGRAM.run(["evaluate", str(directory), *options]) == 0
    assert output.read_bytes() == (finished / "valid.hypotheses.txt").read_bytes()


def test_a_quantized_export_is_smaller_and_lines_are_compared_with_torchs(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    directory = copy_of(finished, tmp_path / "run")
    words = ["export", str(directory), "--format", "ctranslate2"]
    for options in (["--check", "5"], ["--quantization", "int8"], ["--quantization", "float16"]):
        assert PROGRAM.run([*words, *options]) == 0
    assert "\n5 of 5 lines are translated as by torch\n" in capsys.readouterr().out
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
    assert not [path for path in tmp_path.iterdir() if "export" in path.name]


def test_only_an_export_is_overwritten(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "thesis.tex").write_text("years of work")
    words = ["export", str(finished), "--format", "safetensors", "--output", str(tmp_path)]
    assert PROGRAM.run(words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{tmp_path} exists and is no earlier export of this kind" in line
    assert names(tmp_path) == ["thesis.tex"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--format safetensors --quantization int8", "are for --format ctranslate2"),
        ("--format ctranslate2 --check 0", "check is 0, but must be at least 1"),
        ("--format ctranslate2 --average 3", "holds 2 of the 3 checkpoints to average"),
        ("--format safetensors --output nowhere/x", "nowhere is not a folder"),
    ],
)
def test_what_cannot_be_exported_is_refused_in_one_line(
    arguments: str, said: str, finished: Path, capsys: pytest.CaptureFixture[str]
):
    assert PROGRAM.run(["export", str(finished), *arguments.split()]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line


@pytest.mark.parametrize(
    "arguments",
    ["export --format ctranslate2", "export --format safetensors", "evaluate --engine ctranslate2"],
)
def test_a_missing_extra_is_reported_with_how_to_install_it(
    arguments: str,
    finished: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    for library in ("ctranslate2", "safetensors"):
        monkeypatch.setitem(sys.modules, library, None)
    verb, *options = arguments.split()
    assert PROGRAM.run([verb, str(finished), *options]) == 2
    assert "is not installed: pip install '.[export]'" in capsys.readouterr().err
