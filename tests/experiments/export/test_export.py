"""Export a run and use the export, as a user does."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from experiments.cli import PROGRAM
from tests.experiments.conftest import Command


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


FORMATS = {
    "ctranslate2": ["config.json", "model.bin", "shared_vocabulary.json", "vocabulary.model"],
    "safetensors": ["config.json", "data.json", "model.safetensors", "vocabulary.model"],
}
formats = pytest.mark.parametrize("format", FORMATS)


@formats
def test_an_export_is_written_beside_the_checkpoints_and_replaced(
    format: str, copy: Path, finished: Path, capsys: pytest.CaptureFixture[str]
):
    (copy / f".{format}.part").mkdir()  # left by an export that was killed
    for _ in range(2):
        assert PROGRAM.run(["export", str(copy), "--format", format]) == 0
        assert capsys.readouterr().out.startswith(f"{copy / format}  0.")
        assert names(copy / format) == FORMATS[format]
    if format == "ctranslate2":
        assert PROGRAM.run(["evaluate", str(copy / format)]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.endswith(
            "is an export for CTranslate2: give the run, with --engine ctranslate2"
        )
    assert names(copy) == sorted([*names(finished), format])


def test_every_engine_and_export_gives_the_results_of_the_run(finished: Path, tmp_path: Path):
    export, output = tmp_path / "export", tmp_path / "hypotheses.txt"
    words = ["--format", "safetensors", "--output", str(export)]
    assert PROGRAM.run(["export", str(finished), *words]) == 0
    for place, engine in ((export, "torch"), (export, "ctranslate2"), (finished, "ctranslate2")):
        options = ["--engine", engine, "--output", str(output)]
        assert PROGRAM.run(["evaluate", str(place), *options]) == 0
        assert output.read_bytes() == (finished / "valid.hypotheses.txt").read_bytes()
        output.unlink()


def test_a_quantized_export_is_smaller_and_lines_are_compared_with_torchs(
    copy: Path, capsys: pytest.CaptureFixture[str]
):
    words = ["export", str(copy), "--format", "ctranslate2"]
    for options in (["--check", "5"], ["--quantization", "int8"], ["--quantization", "float16"]):
        assert PROGRAM.run([*words, *options]) == 0
    assert "\n5 of 5 lines are translated as by torch\n" in capsys.readouterr().out
    full, int8, half = (
        (copy / name / "model.bin").stat().st_size
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
