"""A run continues, and is scored, only with the data that it started with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from experiments.records.checkpoints import step_checkpoints
from experiments.records.checksums import record_checksums
from experiments.records.data import recorded_data
from experiments.records.result import load_result
from experiments.run import run
from tests.data.test_prepared import flip_a_bit
from tests.experiments.conftest import Command
from tests.experiments.samples import copy_of, forget_result, tiny_experiment
from tests.samples import write_corpus
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


def test_an_old_run_without_recorded_data_keeps_its_vocabulary(own_run: tuple[Path, Path]):
    own, directory = own_run
    (directory / "data.json").unlink()
    vocabulary = (directory / "vocabulary.model").read_bytes()
    changed = own / "train.de"
    changed.write_text(changed.read_text().replace("eins", "einst"))
    with pytest.raises(InputError, match=r"vocabulary\.model is not the vocabulary of the data"):
        run(tiny_experiment(own), directory)
    assert (directory / "vocabulary.model").read_bytes() == vocabulary
    changed.write_text(changed.read_text().replace("einst", "eins"))
    run(tiny_experiment(own), directory)
    assert recorded_data(directory) is not None


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
    record_checksums(other, (other / "result.json").read_bytes())
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
