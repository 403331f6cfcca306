"""A run goes on only with its own data; what has changed since it finished is named."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
import torch

from experiments.evaluate.significance import compare_runs
from experiments.evaluate.verify import verify_all
from experiments.records.checkpoints import step_checkpoints
from experiments.records.checksums import (
    SUMS_FILE,
    check_unchanged,
    read_checksums,
    record_checksums,
)
from experiments.records.data import recorded_data
from experiments.records.result import load_result
from experiments.run import run
from tests.experiments.conftest import Command
from tests.experiments.samples import copy_of, forget_result, tiny_experiment
from tests.samples import flip_a_bit, write_corpus
from transformer.config import from_dict
from transformer.data import prepared
from transformer.data.prepared import Manifest
from transformer.errors import InputError


@pytest.fixture
def own_run(finished: Path, folder: Path, tmp_path: Path) -> tuple[Path, Path]:
    """A folder of files, and a run over it that was stopped after its last checkpoint."""
    own = write_corpus(tmp_path / "own" / "numbers")
    directory = copy_of(finished, tmp_path / "run")
    config = (directory / "config.json").read_text()
    (directory / "config.json").write_text(config.replace(str(folder), str(own)))
    forget_result(directory)
    return own, directory


def change_a_word(folder: Path) -> Path:
    path = folder / "train.de"
    path.write_text(path.read_text().replace("eins", "einst", 1))
    return path


def test_the_digest_is_in_the_result_and_in_each_checkpoint(finished: Path):
    data, result = recorded_data(finished), load_result(finished)
    assert data is not None and result is not None
    assert result.data_digest == data.digest
    for path in (finished / "checkpoints").iterdir():
        state = torch.load(path, weights_only=True)
        assert state["TranslationDataModule"] == {"digest": data.digest}


def test_a_resume_with_changed_text_is_refused_with_the_file(own_run: tuple[Path, Path]):
    own, directory = own_run
    vocabulary = (directory / "vocabulary.model").read_bytes()
    changed = change_a_word(own)
    with pytest.raises(InputError, match=f"not what this run began with: {changed} changed"):
        run(tiny_experiment(own), directory)
    assert (directory / "vocabulary.model").read_bytes() == vocabulary
    assert not (directory / "result.json").exists()


def test_a_resume_with_the_same_text_continues(own_run: tuple[Path, Path]):
    own, directory = own_run
    flip_a_bit(directory / "vocabulary.model")  # written again, as the data is the same
    result = run(tiny_experiment(own), directory)
    assert result is not None and result.steps == 40


def test_a_checkpoint_of_other_data_is_refused(own_run: tuple[Path, Path]):
    own, directory = own_run
    _, path = step_checkpoints(directory)[-1]
    state = torch.load(path, weights_only=True)
    torch.save({**state, "TranslationDataModule": {"digest": "of another"}}, path)
    with pytest.raises(InputError, match="not what this run began with: numbers changed"):
        run(tiny_experiment(own), directory)


def test_an_evaluation_with_changed_text_is_refused_with_the_file(
    own_run: tuple[Path, Path], command: Command
):
    own, directory = own_run
    changed = change_a_word(own)
    for arguments in (("evaluate", directory), ("compare", directory, directory)):
        ended = command("experiments", *arguments)
        assert ended.code == 2, ended
        (line,) = ended.lines
        assert f"began with: {changed} changed" in line


@pytest.mark.parametrize(
    "arguments", [("evaluate",), ("translate",), ("export", "--format", "safetensors")]
)
def test_another_vocabulary_in_the_run_is_refused(
    arguments: tuple[str, ...], finished: Path, command: Command, tmp_path: Path
):
    directory = copy_of(finished, tmp_path / "run")
    flip_a_bit(directory / "vocabulary.model")
    ended = command("experiments", arguments[0], directory, *arguments[1:])
    assert ended.code == 2, ended
    assert "vocabulary.model is not the vocabulary that the run was trained with" in ended.stderr


def test_runs_scored_on_different_text_are_not_compared(
    finished: Path, command: Command, tmp_path: Path
):
    other = copy_of(finished, tmp_path / "run")
    data = json.loads((other / "data.json").read_text())
    data["files"]["valid/reference.txt"]["sha256"] = "0" * 64
    changed = from_dict(Manifest, data)
    data["digest"] = prepared._digest(changed)  # pyright: ignore[reportPrivateUsage]
    (other / "data.json").write_text(json.dumps(data))
    result = load_result(other)
    assert result is not None
    record_checksums(other, result)
    ended = command("experiments", "compare", finished, other)
    assert ended.code == 2
    assert "different text: valid/reference.txt differs" in ended.stderr


def test_verify_names_what_changed(own_run: tuple[Path, Path], command: Command):
    own, directory = own_run
    sound = command("experiments", "verify", directory)
    assert (sound.code, sound.stderr) == (0, "")
    assert sound.stdout.splitlines()[-1].endswith("files, all as they were")
    flip_a_bit(directory / "vocabulary.model")
    changed = change_a_word(own)
    ended = command("experiments", "verify", directory)
    assert ended.code == 2
    assert f"{changed}: changed since the run began" in ended.stdout
    assert f"{directory / 'vocabulary.model'}: changed since the run began" in ended.stdout
    assert len(ended.stderr.splitlines()) == 1


def test_verify_asks_for_what_is_not_prepared(folder: Path, command: Command):
    ended = command("experiments", "verify", f"files:{folder}", "--vocab-size", "59")
    assert (ended.code, ended.stdout) == (2, "")
    assert "numbers is not prepared as it is now: prepare it first" in ended.stderr
    ended = command("experiments", "verify", folder)
    assert f"for a folder of text: files:{folder}" in ended.stderr


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


def test_a_run_that_is_continued_records_its_files_anew(copy: Path, folder: Path) -> None:
    forget_result(copy)
    _flip(copy / "valid.samples.json")
    before = (copy / SUMS_FILE).read_text()
    run(tiny_experiment(folder), copy)
    check_unchanged(copy)
    assert (copy / SUMS_FILE).read_text() != before  # the time that it took
