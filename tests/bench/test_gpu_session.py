"""Work in calls that are cut off, in folders that are gone afterwards."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest

from bench.gpu_session import ROOT
from bench.session_archive import needed, pack, unfinished, unpack
from experiments.records.experiment import CHECKPOINTS, CONFIG_FILE
from experiments.records.result import RESULT_FILE, load_result
from tests.experiments.samples import assert_same_end, tiny_experiment
from tests.samples import write_corpus
from transformer.config import TrainingConfig, to_dict
from transformer.files import write_json

TABLE = """
from dataclasses import replace

from ablations.tables import scale
from ablations.tables.table3 import TABLE as TABLE3
from transformer import folder_corpus

TINY = scale(
    "tiny", corpus=folder_corpus("text"), divide_widths=8, divide_layers=2, max_steps=100,
    vocab_size=60, tokens_per_batch=256, warmup_steps=500, also_average=3, beam_size=1,
    checkpoint_every_steps=10, validate_every_steps=50, precision="fp32",
)
TABLE = replace(TABLE3, name="session", scales=(TINY,))
"""
PLAN = """
from bench.gpu_session import Stage, table

STAGES = (
    Stage(name="first", results="first", words=("timeit", "-n1", "-r1"), is_table=False),
    table("small", "table.py --scale tiny --rows base,D-p0.0 --seeds 1 --workers 1 --threads 1"),
)
"""


def checkpoint(step: int, is_stop: bool = False) -> tuple[int, Path]:
    return step, Path(f"step-{step:08}{'-stop' if is_stop else ''}.ckpt")


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([10, 20, 30], [30]),  # the last three to come are 80, 90 and 100
        ([60, 70, 80], [80]),
        ([70, 80, 85], [80, 85]),
        ([70, 80, 90], [80, 90]),
        ([80, 90, 100], [80, 90, 100]),
        ([], []),
    ],
)
def test_what_the_rest_of_a_run_needs(steps: list[int], expected: list[int]) -> None:
    found = [checkpoint(step, is_stop=step == 85) for step in steps]
    training = TrainingConfig(seed=1, max_steps=100, also_average=3, checkpoint_every_steps=10)
    kept = needed(found, training)
    assert [step for step, path in found if path in kept] == expected


def make_run(folder: Path, name: str, steps: list[int], is_finished: bool = False) -> Path:
    """A run of 100 steps whose checkpoints do not get smaller by packing."""
    run, text = folder / name, folder.parent / "text"
    (run / CHECKPOINTS).mkdir(parents=True)
    if not text.exists():
        write_corpus(text)
    experiment = tiny_experiment(text, max_steps=100, average_checkpoints=1)
    write_json(run / CONFIG_FILE, to_dict(experiment))
    for step in steps:
        (run / CHECKPOINTS / checkpoint(step)[1]).write_bytes(os.urandom(50_000))
    (run / "log.txt").write_text("epoch 1\n" * 1_000, encoding="utf-8")
    if is_finished:
        (run / RESULT_FILE).write_text("{}", encoding="utf-8")
    return run


def test_an_archive_has_what_the_next_call_needs(tmp_path: Path) -> None:
    work, archive = tmp_path / "work", tmp_path / "state.tar.xz"
    make_run(work, "base/seed-1", [90, 100], is_finished=True)
    make_run(work, "base/seed-2.attempt-1", [40, 50])
    make_run(work, "big/seed-1.attempt-3", [10])
    make_run(work, "big/seed-2.attempt-1", [])
    assert [round(run.progress, 2) for run in unfinished(work)] == [0.5, 0.1, 0.0]
    assert pack(work, archive, 1_000_000) == []
    assert checkpoints_in(archive) == {
        "base/seed-2.attempt-1": {"step-00000050.ckpt"},
        "big/seed-1.attempt-3": {"step-00000010.ckpt"},
    }
    unpack(archive, tmp_path / "again")
    for path in (tmp_path / "again").rglob("*.*"):
        if path.is_file():
            assert path.read_bytes() == (work / path.relative_to(tmp_path / "again")).read_bytes()
    (line,) = pack(work, archive, 80_000)
    assert line.endswith("big/seed-1.attempt-3 at 10%")
    assert [*checkpoints_in(archive)] == ["base/seed-2.attempt-1"]
    with tarfile.open(archive) as tar:
        assert not any(name.startswith("big/seed-1") for name in tar.getnames())
    assert archive.stat().st_size <= 80_000
    *_, line = pack(work, archive, 100)
    assert "more than the 100 asked for" in line and checkpoints_in(archive) == {}


def checkpoints_in(archive: Path) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    with tarfile.open(archive) as tar:
        for name in tar.getnames():
            run, _, file = name.partition(f"/{CHECKPOINTS}/")
            if file:
                found.setdefault(run, set()).add(file)
    return found


def session(folder: Path, work: str, state: str, *more: str) -> subprocess.Popen[str]:
    """A call, on a machine that knows nothing of earlier ones."""
    words = ["--data", "data", "--plan", "plan.py", "--work", work, "--state", state, *more]
    return subprocess.Popen(
        [sys.executable, "-m", "bench.gpu_session", *words],
        cwd=folder,
        env={
            **os.environ,
            "CUDA_VISIBLE_DEVICES": "",
            "PYTHONPATH": str(ROOT),
            "DATA_CACHE": str(folder / "cache"),
        },
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_work_that_is_cut_off_ends_like_that_which_is_not(tmp_path: Path) -> None:
    """Stopped while a run trains, and continued from the archive in a fresh folder."""
    write_corpus(tmp_path / "data" / "text", train=400)
    (tmp_path / "data" / "table.py").write_text(TABLE, encoding="utf-8")
    (tmp_path / "plan.py").write_text(PLAN, encoding="utf-8")
    cut = session(tmp_path, "cut", "state.tar.xz")
    while not [*tmp_path.glob(f"cut/small/*/*/{CHECKPOINTS}/step-*[2-5]0.ckpt")]:
        assert cut.poll() is None
        time.sleep(0.1)
    cut.send_signal(signal.SIGTERM)
    assert "small: 0 runs finished, 1 begun" in cut.communicate()[0]
    assert checkpoints_in(tmp_path / "state.tar.xz")
    shutil.rmtree(tmp_path / "cut")
    for number, expected in enumerate(("small: done, 2 runs", "small: done, 2 runs")):
        again = session(tmp_path, f"again-{number}", "state.tar.xz", "--only", "small")
        assert expected in again.communicate()[0] and again.returncode == 0
    assert checkpoints_in(tmp_path / "state.tar.xz") == {}
    whole = session(tmp_path, "whole", "other.tar.xz")
    assert "small: done, 2 runs" in whole.communicate()[0]
    for row in ("base", "D-p0.0"):
        folders = [tmp_path / name / "small" / row / "seed-1" for name in ("again-0", "whole")]
        assert_same_end(*folders)
        results = [load_result(folder) for folder in folders]
        averaged = [result.averaged for result in results if result is not None]
        assert averaged[0] is not None and averaged[0] == averaged[1]
        assert averaged[0].checkpoints == 3


def test_an_unknown_stage_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "plan.py").write_text(PLAN, encoding="utf-8")
    asked = session(tmp_path, "work", "state.tar.xz", "--only", "smal")
    assert asked.communicate()[0] == "" and asked.returncode == 2
    assert not (tmp_path / "work").exists()


def test_a_place_where_no_archive_can_be_written_is_named_first(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "plan.py").write_text(PLAN, encoding="utf-8")
    asked = session(tmp_path, "work", "new/state.tar.xz")
    assert asked.communicate()[0] == "" and asked.returncode == 2
    assert not (tmp_path / "work").exists()
