"""What tests of several folders here share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ablations.cli import PROGRAM
from tests.ablations.samples import Call, prepare_stand_ins, start_stand_in

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _fp32(monkeypatch: pytest.MonkeyPatch) -> None:
    """To ask for this machine's precision takes a process that imports torch."""
    monkeypatch.setattr("ablations.tables.plan_file.faster_precision", lambda _: "fp32")


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports have empty figures, as drawing takes seconds."""
    monkeypatch.setattr(
        "ablations.report.layout.draw", lambda specs: dict.fromkeys(specs, ("<svg/>", b""))
    )


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    def call(arguments: str) -> tuple[int, str]:
        code = PROGRAM.run(arguments.split())
        return code, "".join(capsys.readouterr())

    return call


@pytest.fixture
def out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, undrawn: None) -> Path:
    """The directory of the small table in a working directory with its file; runs are stand-ins."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("WANDB_MODE", "disabled")
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.setattr("ablations.runs.process.fork", start_stand_in)
    monkeypatch.setattr("ablations.run.track_table_run", lambda root: None)
    (tmp_path / "pair.py").write_text("from tests.ablations.samples import SMALL_TABLE as TABLE")
    prepare_stand_ins(tmp_path / "out", {})
    return tmp_path / "out"
