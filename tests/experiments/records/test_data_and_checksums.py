"""A run continues only with its own data; files changed since it finished are named."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
import torch

from experiments.cli import PROGRAM
from experiments.evaluate.significance import compare_runs
from experiments.records.checksums import (
    SUMS_FILE,
    check_unchanged,
    read_checksums,
    record_checksums,
)
from experiments.records.data import recorded_data
from experiments.records.outputs import step_checkpoints
from experiments.records.result import load_result
from experiments.run import run
from tests.experiments.samples import tiny_experiment
from tests.samples import flip_a_bit, write_corpus
from transformer.config import from_dict
from transformer.data import prepared
from transformer.data.prepared import Manifest
from transformer.errors import InputError

Said = pytest.CaptureFixture[str]


@pytest.fixture
def own_run(unfinished: Path, folder: Path, tmp_path: Path) -> tuple[Path, Path]:
    """A folder of files, and an unfinished run over it."""
    own, config = write_corpus(tmp_path / "own" / "numbers"), unfinished / "config.json"
    config.write_text(config.read_text().replace(str(folder), str(own)))
    return own, unfinished


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


def test_changed_text_is_refused_with_the_file(own_run: tuple[Path, Path], capsys: Said):
    own, directory = own_run
    changed = change_a_word(own)
    with pytest.raises(InputError, match=f"not what this run began with: {changed} changed"):
        run(tiny_experiment(own), directory)
    assert not (directory / "result.json").exists()
    with pytest.raises(InputError, match=f"began with: {changed} changed"):
        compare_runs(directory, directory, "valid")
    assert PROGRAM.run(["evaluate", str(directory)]) == 2
    assert f"began with: {changed} changed" in capsys.readouterr().err
    assert PROGRAM.run(["verify", str(directory)]) == 2
    said = capsys.readouterr()
    assert f"{changed}: changed since the run began" in said.out
    assert len(said.err.splitlines()) == 1


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


@pytest.mark.parametrize("words", ["evaluate", "translate", "export --format safetensors"])
def test_another_vocabulary_in_the_run_is_refused(words: str, copy: Path, capsys: Said):
    flip_a_bit(copy / "vocabulary.model")
    verb, *options = words.split()
    assert PROGRAM.run([verb, str(copy), *options]) == 2
    said = "vocabulary.model is not the vocabulary that the run was trained with"
    assert said in capsys.readouterr().err


def test_runs_scored_on_different_text_are_not_compared(finished: Path, copy: Path):
    data = json.loads((copy / "data.json").read_text())
    data["files"]["valid/reference.txt"]["sha256"] = "0" * 64
    changed = from_dict(Manifest, data)
    data["digest"] = prepared._digest(changed)  # pyright: ignore[reportPrivateUsage]
    (copy / "data.json").write_text(json.dumps(data))
    result = load_result(copy)
    assert result is not None
    record_checksums(copy, result)
    with pytest.raises(InputError, match=r"different text: valid/reference\.txt differs"):
        compare_runs(finished, copy, "valid")


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
LARGE = [f"checkpoints/{name}.ckpt" for name in ("step-00000030", "step-00000040")]


def test_all_that_a_run_leaves_is_recorded(copy: Path, capsys: Said) -> None:
    assert sorted(read_checksums(copy)) == sorted([*LARGE, *SMALL])
    assert subprocess.run(["sha256sum", "-c", "--quiet", SUMS_FILE], cwd=copy).returncode == 0
    check_unchanged(copy)
    assert PROGRAM.run(["verify", str(copy)]) == 0
    assert capsys.readouterr().out.endswith(" files, all as they were\n")


@pytest.mark.parametrize("name", ["metrics.csv", "valid.hypotheses.txt", LARGE[0]])
def test_a_changed_or_missing_file_is_named(name: str, copy: Path, capsys: Said) -> None:
    for damage, said in (
        (flip_a_bit, "changed since the run finished"),
        (Path.unlink, "missing, but was there when the run finished"),
    ):
        damage(copy / name)
        assert PROGRAM.run(["verify", str(copy)]) == 2
        assert f"{copy / name}: {said}\n" in capsys.readouterr().out
        if name in LARGE:
            check_unchanged(copy)  # too slow for each report
        else:
            with pytest.raises(InputError, match=f"{name} {said}: restore it, or remove the run"):
                compare_runs(copy, copy, "valid")


@pytest.mark.parametrize("content", [b"", b"\xff\n", f"{'0' * 64}  x\n".encode()])
def test_a_damaged_record_is_named(content: bytes, copy: Path) -> None:
    (copy / SUMS_FILE).write_bytes(content)
    with pytest.raises(InputError, match=r"SHA256SUMS is damaged: restore it, or delete it"):
        check_unchanged(copy)


def test_a_run_without_the_record_is_read_and_one_that_continues_makes_it_anew(
    copy: Path, folder: Path
) -> None:
    before = (copy / SUMS_FILE).read_text()
    flip_a_bit(copy / "valid.samples.json")
    (copy / SUMS_FILE).rename(copy / "kept")
    check_unchanged(copy)
    (copy / "kept").rename(copy / SUMS_FILE)
    (copy / "result.json").unlink()
    check_unchanged(copy)
    run(tiny_experiment(folder), copy)
    check_unchanged(copy)
    assert (copy / SUMS_FILE).read_text() != before  # the time that it took
