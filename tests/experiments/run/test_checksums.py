"""What has changed in a run since it finished is noticed and named."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from experiments.evaluate.significance import compare_runs
from experiments.evaluate.verify import verify_all
from experiments.records.checksums import SUMS_FILE, check_unchanged, read_checksums
from experiments.run import run
from tests.experiments.samples import copy_of, forget_result, tiny_experiment
from transformer.errors import InputError

SMALL = [
    "config.json",
    "data.json",
    "metrics.csv",
    "result.json",
    "test.hypotheses.txt",
    "test.samples.json",
    "valid.hypotheses.txt",
    "valid.samples.json",
    "vocabulary.model",
]
LARGE = [f"checkpoints/{name}.ckpt" for name in ("best", "step-00000030", "step-00000040")]


@pytest.fixture
def copy(finished: Path, tmp_path: Path) -> Path:
    return copy_of(finished, tmp_path / "run")


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def test_all_that_a_run_leaves_is_recorded(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert sorted(read_checksums(copy)) == sorted([*LARGE, *SMALL])
    assert subprocess.run(["sha256sum", "-c", "--quiet", SUMS_FILE], cwd=copy).returncode == 0
    check_unchanged(copy)
    verify_all(str(copy), None)
    assert capsys.readouterr().out.endswith(" files, all as they were\n")


@pytest.mark.parametrize("name", [*SMALL, *LARGE])
def test_a_flipped_bit_is_named(name: str, copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _flip(copy / name)
    with pytest.raises(InputError):
        verify_all(str(copy), None)
    assert f"{copy / name}: changed since the run finished\n" in capsys.readouterr().out
    if name in LARGE:
        check_unchanged(copy)  # too slow for each report
        return
    message = re.escape(f"{copy / name} changed since the run finished: restore it")
    with pytest.raises(InputError, match=message):
        check_unchanged(copy)
    with pytest.raises(InputError, match=message):
        compare_runs(copy, copy, "valid")


def test_a_missing_file_is_named(copy: Path) -> None:
    (copy / "metrics.csv").unlink()
    with pytest.raises(InputError, match=r"metrics\.csv missing, but was there when the run"):
        check_unchanged(copy)


@pytest.mark.parametrize("content", [b"", b"\xff\n", b"no sum\n", f"{'0' * 64}  x\n".encode()])
def test_a_damaged_record_is_named(content: bytes, copy: Path) -> None:
    (copy / SUMS_FILE).write_bytes(content)
    with pytest.raises(InputError, match=r"SHA256SUMS is damaged: restore it, or delete it"):
        check_unchanged(copy)


def test_a_run_from_before_the_record_and_an_unfinished_one_are_read_as_ever(copy: Path) -> None:
    _flip(copy / "metrics.csv")
    (copy / "result.json").rename(copy / "kept")
    check_unchanged(copy)
    (copy / "kept").rename(copy / "result.json")
    (copy / SUMS_FILE).unlink()
    check_unchanged(copy)


def test_a_run_that_is_continued_records_its_files_anew(
    copy: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "disabled")
    forget_result(copy)
    _flip(copy / "valid.samples.json")
    before = (copy / SUMS_FILE).read_text()
    run(tiny_experiment(folder), copy)
    check_unchanged(copy)
    assert (copy / SUMS_FILE).read_text() != before  # the time that it took
