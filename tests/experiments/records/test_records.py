"""Files of a run's directory: read as they were written, damage and other data are named."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
import shutil
import subprocess
import time
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from ablations.folder.base import copy_run
from experiments.callbacks.metrics import Clock, LogMetrics
from experiments.evaluate.significance import compare_runs
from experiments.records import provenance
from experiments.records.attempt import Failure
from experiments.records.checksums import (
    SUMS_FILE,
    check_unchanged,
    read_checksums,
    record_checksums,
)
from experiments.records.data import recorded_data
from experiments.records.experiment import Experiment, Limits
from experiments.records.outputs import step_checkpoints
from experiments.records.progress import (
    Progress,
    RunState,
    final_state,
    read_progress,
    record_end,
    write_progress,
)
from experiments.records.result import load_result, save_result
from experiments.records.run import read_run
from experiments.run import run
from tests.experiments.conftest import Command
from tests.experiments.samples import tiny_experiment
from tests.samples import flip_a_bit, write_corpus
from transformer.config import from_dict, override, training_digest
from transformer.data import prepared
from transformer.data.fetch.cache import sha256_of
from transformer.data.prepared import Manifest
from transformer.errors import InputError
from transformer.files import write_json

PROGRESS = Progress(stage=RunState.TRAIN, step=3, max_steps=7, loss=2.5, seconds_left=2.0)


def test_a_result_comes_back_as_it_was(finished: Path, tmp_path: Path):
    assert load_result(tmp_path) is None
    result = load_result(finished)
    assert result is not None
    infinite = {"perplexity": math.inf, "test_perplexity": math.inf, "flops": -math.inf}
    for changed in (result, dataclasses.replace(result, test_bleu=None, **infinite)):
        save_result(tmp_path, changed)
        assert load_result(tmp_path) == changed
    as_json = (tmp_path / "result.json").read_text()
    assert json.loads(as_json, parse_constant=pytest.fail)["test_perplexity"] == "Infinity"
    # Earlier versions wrote the word, which is no JSON.
    (tmp_path / "result.json").write_text(as_json.replace('"Infinity"', "Infinity"))
    assert load_result(tmp_path) == changed
    written = json.loads((finished / "result.json").read_text())
    write_json(tmp_path / "result.json", written | {"a measure of another version": 1.0})
    assert load_result(tmp_path) == result
    write_json(tmp_path / "result.json", written | {"steps": "many"})
    with pytest.raises(InputError, match=r"result\.json does not fit this version.*steps"):
        load_result(tmp_path)


def test_progress_that_cannot_be_read_is_none(tmp_path: Path):
    assert read_progress(tmp_path) is None
    for content in ("", "{", "[]", "{}", '{"stage": "unheard of"}'):
        (tmp_path / "progress.json").write_text(content)
        assert read_progress(tmp_path) is None


def test_a_message_is_stripped_of_control_characters():
    written = "\x1b[31;1mred\x1b[0m and\x07 \x1b]0;title\x07more\ta tab, \r\nüber 語 \u202e."
    shown = "red and more a tab,   über 語 ."
    assert Progress(stage=RunState.FAILED, message=written).message == shown
    failure = Failure(attempt=1, reason=written, lines=(written,), at=0.0)
    assert (failure.reason, failure.lines) == (shown, (shown,))


def test_without_a_record_the_exit_code_decides_how_a_process_ended(tmp_path: Path):
    write_progress(tmp_path, PROGRESS)
    states = {0: "done", 2: "refused", 75: "stopped", 1: "failed", -9: "failed"}
    assert {code: final_state(tmp_path, code, time.time()) for code in states} == states


def test_its_first_record_stands_and_keeps_how_far_the_run_was(tmp_path: Path):
    """One rank runs out of memory, and then another fails because the first is gone."""
    write_progress(tmp_path, PROGRESS)
    started_at = time.time()
    record_end(tmp_path, RunState.DIVERGED, "nan", step=5, started_at=started_at)
    record_end(tmp_path, RunState.FAILED, "connection closed", started_at=started_at)
    assert final_state(tmp_path, 17, started_at) == RunState.DIVERGED
    assert final_state(tmp_path, 17, time.time() + 1) == "failed"  # a later process
    found = read_progress(tmp_path)
    assert found is not None
    assert (found.step, found.max_steps, found.message, found.seconds_left) == (5, 7, "nan", None)
    record_end(tmp_path, RunState.STOPPED, "at the next attempt", started_at=time.time())
    assert final_state(tmp_path, 17, started_at) == "stopped"
    record_end(tmp_path / "gone", RunState.STOPPED, "why", started_at=0.0)
    assert not (tmp_path / "gone").exists()


_HEADER = b"step,loss,train_perplexity,learning_rate,gradient_norm,valid_loss,valid_perplexity\r\n"
_ROWS = [b"10,4.1,60,0.1,1.5,,\r\n", b"20,3.9,5e+1,0.2,1.4,,\r\n", b"20,,,,,3.8,inf\r\n"]
_LATER = b"30,3.7,4,0.3,1,,\r\n"


@pytest.mark.parametrize(
    ("before", "step", "kept"),
    [
        (None, 0, []),
        (b"", 0, []),
        (_HEADER[:20], 30, []),
        (_HEADER + b"".join(_ROWS) + _LATER, 0, []),
        (_HEADER + b"".join(_ROWS) + _LATER, 25, _ROWS),
        (_HEADER + b"".join(_ROWS) + _LATER, 30, [*_ROWS, _LATER]),
        (_HEADER + b"".join(_ROWS)[:-5], 30, _ROWS[:2]),  # the disk was full
        (_HEADER + b"".join(_ROWS) + b"\0" * 18, 30, _ROWS),  # a power cut
        (_HEADER + _ROWS[0] + _ROWS[1].replace(b"3.9", b"\xff.9") + _ROWS[2], 30, _ROWS[::2]),
        (_HEADER + _ROWS[0] + b'"\n10,4\n20,\n', 30, _ROWS[:1]),
        (_HEADER + b"\0" * 65_536 + _LATER + _ROWS[0], 30, _ROWS[:1]),  # a line of no length
    ],
)
def test_metrics_that_are_damaged_or_of_later_steps_are_dropped(
    before: bytes | None, step: int, kept: list[bytes], tmp_path: Path
):
    path = tmp_path / "metrics.csv"
    if before is not None:
        path.write_bytes(before)
    LogMetrics(tmp_path, Clock(), every=10, resumed_step=step)
    assert path.read_bytes() == _HEADER + b"".join(kept)
    assert read_run(tmp_path).curve == ({20: float("inf")} if _ROWS[2] in kept else {})
    norms = {10: 1.5, 20: 1.4, 30: 1.0}
    logged = {int(line[:2]) for line in kept if line[3:4] != b","}
    assert read_run(tmp_path).gradient_norms == {step: norms[step] for step in logged}


def test_the_time_of_a_validation_does_not_count_for_the_speed(tmp_path: Path):
    clock: Any = SimpleNamespace(seconds=0.0, target_tokens=0)
    trainer: Any = SimpleNamespace(
        is_global_zero=True,
        global_step=5,
        accumulate_grad_batches=1,
        fit_loop=SimpleNamespace(batch_idx=0),
        callback_metrics=defaultdict(lambda: 1.0),
    )
    module: Any = SimpleNamespace(log=lambda *_: None)
    log = LogMetrics(tmp_path, clock, every=5, resumed_step=0)
    log.on_train_start()
    clock.seconds = 3.0
    log.on_validation_start()
    clock.seconds = 10.0
    log.on_validation_end(trainer)
    clock.seconds, clock.target_tokens = 11.0, 80
    log.on_train_batch_end(trainer, module)
    assert read_run(tmp_path).speeds == {5: 20.0}  # 80 tokens in 3 seconds and 1


def test_speeds_that_are_damaged_or_of_later_steps_are_dropped(tmp_path: Path):
    path = tmp_path / "speed.csv"
    path.write_bytes(b"step,tokens_per_second\r\n7,1300\r\n11,\0\r\n13,1.7e+3\r\n17,1900\r\n19,2")
    LogMetrics(tmp_path, Clock(), every=10, resumed_step=13)
    assert path.read_bytes() == b"step,tokens_per_second\r\n7,1300\r\n13,1.7e+3\r\n"
    assert read_run(tmp_path).speeds == {7: 1300.0, 13: 1700.0}
    path.unlink()  # as in a run of an earlier version
    assert read_run(tmp_path).speeds == {}


def test_the_commit_is_found_without_writing_to_the_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def git(*arguments: str) -> str:
        identity = ["-c", "user.name=me", "-c", "user.email=me@example.org"]
        return subprocess.run(
            ["git", *identity, *arguments],
            cwd=tmp_path,
            check=True,
            capture_output=True,
            text=True,
            errors="replace",
        ).stdout.strip()

    source = tmp_path / "source.py"
    source.write_text("one = 1\n")
    git("init", "--initial-branch=gr\udcf6\udcdfer")  # in an encoding other than the locale's
    git("add", "source.py")
    git("commit", "--message=first")
    monkeypatch.setattr(provenance, "__file__", str(source))
    find = provenance.commit.__wrapped__
    os.utime(source, (0, 0))  # what git would note in its index, under a lock
    index = (tmp_path / ".git" / "index").read_bytes()
    assert find() == git("rev-parse", "HEAD")[:12]
    source.write_text("one = 2\n")
    assert find() == git("rev-parse", "HEAD")[:12] + "-dirty"
    assert (tmp_path / ".git" / "index").read_bytes() == index
    monkeypatch.setattr(provenance, "__file__", str(tmp_path / "installed.py"))
    assert find() == "unknown"  # and not that of another repository, in which it is installed


@pytest.fixture
def own_run(unfinished: Path, folder: Path, tmp_path: Path) -> tuple[Path, Path]:
    """A folder of files, and an unfinished run over it."""
    own, config = write_corpus(tmp_path / "own" / "numbers"), unfinished / "config.json"
    config.write_text(config.read_text().replace(str(folder), str(own)))
    return own, unfinished


def test_changed_text_is_refused_with_the_file(own_run: tuple[Path, Path], call: Command):
    own, directory = own_run
    changed = own / "train.de"
    changed.write_text(changed.read_text().replace("eins", "einst", 1))
    (directory / SUMS_FILE).touch()  # as after it finished with less to do
    with pytest.raises(InputError, match=f"not what this run began with: {changed} changed"):
        run(tiny_experiment(own), directory)
    assert not (directory / "result.json").exists() and (directory / SUMS_FILE).exists()
    with pytest.raises(InputError, match=f"began with: {changed} changed"):
        compare_runs(read_run(directory), read_run(directory), "valid")
    ended = call("evaluate", directory)
    assert ended.code == 2 and f"began with: {changed} changed" in ended.stderr
    ended = call("verify", directory)
    assert (ended.code, len(ended.lines)) == (2, 1)
    assert f"{changed}: changed since the run began" in ended.stdout


def test_a_resume_with_the_same_text_continues(own_run: tuple[Path, Path]):
    own, directory = own_run
    flip_a_bit(directory / "vocabulary.model")  # written again, as the data is the same
    result = run(tiny_experiment(own), directory)
    assert result is not None and result.steps == 40


def test_a_checkpoint_of_other_data_is_refused(own_run: tuple[Path, Path]):
    own, directory = own_run
    _, path = step_checkpoints(directory)[-1]
    state, data = torch.load(path, weights_only=True), recorded_data(directory)
    assert data is not None and state["TranslationDataModule"] == {"digest": data.digest}
    torch.save({**state, "TranslationDataModule": {"digest": "of another"}}, path)
    with pytest.raises(InputError, match="not what this run began with: numbers changed"):
        run(tiny_experiment(own), directory)


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{"seed": 2}, {"learning_rate_factor": 0.9}])
def test_a_checkpoint_of_another_training_is_refused_even_if_it_is_only_averaged(
    changes: dict[str, Any], own_run: tuple[Path, Path], tmp_path: Path, call: Command
):
    own, directory = own_run
    ours = tiny_experiment(own)
    other = replace(ours, config=override(ours.config, **changes))
    run(other, tmp_path / "other", limits=Limits(max_steps=30))
    _, theirs = step_checkpoints(tmp_path / "other")[-1]
    shutil.copy(theirs, directory / "checkpoints" / "step-00000030.ckpt")
    for path in (directory / "checkpoints").glob("step-00000040*"):
        path.rename(path.with_name("step-00000035-stop.ckpt"))
    refused = r"30\.ckpt belongs to another training, with another seed or other settings"
    with pytest.raises(InputError, match=refused):
        run(ours, directory)
    assert len(step_checkpoints(directory)) == 2 and not (directory / "result.json").exists()
    for verb in ("evaluate", "translate"):
        ended = call(verb, directory)
        assert ended.code == 2 and "belongs to another training" in ended.stderr


def test_a_checkpoint_that_does_not_say_its_training_is_continued(own_run: tuple[Path, Path]):
    own, directory = own_run
    for _, path in step_checkpoints(directory):
        state = torch.load(path, weights_only=True)
        assert state.pop("training_digest") == training_digest(tiny_experiment(own).config)
        torch.save(state, path)
    result = run(tiny_experiment(own), directory)
    assert result is not None and result.steps == 40


@pytest.mark.parametrize("words", ["evaluate", "translate", "export --format safetensors"])
def test_another_vocabulary_in_the_run_is_refused(words: str, copy: Path, call: Command):
    flip_a_bit(copy / "vocabulary.model")
    verb, *options = words.split()
    ended = call(verb, copy, *options)
    said = "vocabulary.model is not the vocabulary that the run was trained with"
    assert ended.code == 2 and said in ended.stderr


def test_runs_scored_on_different_text_are_not_compared(finished: Path, copy: Path):
    data = json.loads((copy / "data.json").read_text())
    data["files"]["valid/reference.txt"]["sha256"] = "0" * 64
    changed = from_dict(Manifest, data)
    data["digest"] = prepared._digest(changed)
    (copy / "data.json").write_text(json.dumps(data))
    result = load_result(copy)
    assert result is not None
    save_result(copy, record_checksums(copy, result))
    with pytest.raises(InputError, match=r"different text: valid/reference\.txt differs"):
        compare_runs(read_run(finished), read_run(copy), "valid")


CHECKPOINT = "checkpoints/step-00000030.ckpt"
RECORDED = [
    CHECKPOINT, "checkpoints/step-00000040.ckpt", "config.json", "data.json", "metrics.csv",
    "result.json", "test.hypotheses.txt", "test.samples.json", "valid.hypotheses.txt",
    "valid.samples.json", "vocabulary.model",
]  # fmt: skip


def test_all_that_a_run_leaves_is_recorded(finished: Path, call: Command) -> None:
    assert sorted(read_checksums(finished)) == RECORDED
    assert subprocess.run(["sha256sum", "-c", "--quiet", SUMS_FILE], cwd=finished).returncode == 0
    check_unchanged(finished)
    ended = call("verify", finished)
    assert ended.code == 0 and ended.stdout.endswith(" files, all as they were\n")


@pytest.mark.parametrize("name", ["metrics.csv", "valid.hypotheses.txt", CHECKPOINT])
def test_a_changed_or_missing_file_is_named(name: str, copy: Path, call: Command) -> None:
    for damage, said in (
        (flip_a_bit, "changed since the run finished"),
        (Path.unlink, "missing, but was there when the run finished"),
    ):
        damage(copy / name)
        ended = call("verify", copy)
        assert ended.code == 2 and f"{copy / name}: {said}\n" in ended.stdout
        if name == CHECKPOINT:
            check_unchanged(copy)  # too slow for each report
        else:
            with pytest.raises(InputError, match=f"{name} {said}: restore it, or remove the run"):
                compare_runs(read_run(copy), read_run(copy), "valid")


def test_a_changed_line_of_the_record_is_named(copy: Path, call: Command) -> None:
    """Whoever changes a file and its line is found by the digest in the result."""
    result = load_result(copy)
    assert result is not None
    lines = [x for x in (copy / SUMS_FILE).read_text().splitlines() if "result.json" not in x]
    content = "".join(f"{line}\n" for line in sorted(lines)).encode()
    assert result.files_digest == hashlib.sha256(content).hexdigest()
    path = copy / "metrics.csv"
    before = sha256_of(path)
    path.write_text(path.read_text() + "\n")
    sums = (copy / SUMS_FILE).read_text().replace(before, sha256_of(path))
    (copy / SUMS_FILE).write_text(sums)
    with pytest.raises(InputError, match=r"SHA256SUMS is damaged: restore it, or delete it"):
        check_unchanged(copy)
    (copy / SUMS_FILE).unlink()
    check_unchanged(copy)
    ended = call("verify", copy)
    assert ended.code == 2 and f"{copy / SUMS_FILE}: missing, but was there" in ended.stdout


def test_an_added_checkpoint_is_named(copy: Path, call: Command) -> None:
    added = copy / "checkpoints" / "step-00000050.ckpt"
    shutil.copy(copy / CHECKPOINT, added)
    ended = call("verify", copy)
    assert ended.code == 2
    assert f"{added}: was not there when the run finished, but would be read" in ended.stdout


def test_a_copy_keeps_each_line_and_says_what_it_leaves_out(
    copy: Path, tmp_path: Path, call: Command
) -> None:
    copy_run(read_run(copy), tmp_path / "collected")
    assert (tmp_path / "collected" / SUMS_FILE).read_text() == (copy / SUMS_FILE).read_text()
    check_unchanged(tmp_path / "collected")
    ended = call("verify", tmp_path / "collected")
    left_out = [x for x in RECORDED if x.endswith((".ckpt", ".model"))]
    said = {line for line in ended.stdout.splitlines() if "not copied" in line}
    assert ended.code == 0 and said == {
        f"{tmp_path / 'collected' / name}: not copied" for name in left_out
    }
    (tmp_path / "collected" / "metrics.csv").unlink()
    assert "metrics.csv: missing" in call("verify", tmp_path / "collected").stdout


@pytest.mark.parametrize("content", [b"", b"\xff\n", f"{'0' * 64}  x\n".encode()])
def test_a_damaged_record_is_named(content: bytes, copy: Path) -> None:
    (copy / SUMS_FILE).write_bytes(content)
    with pytest.raises(InputError, match=r"SHA256SUMS is damaged: restore it, or delete it"):
        check_unchanged(copy)


def test_a_run_without_the_record_is_read_and_one_that_continues_makes_it_anew(
    copy: Path, experiment: Experiment
) -> None:
    before = (copy / SUMS_FILE).read_text()
    flip_a_bit(copy / "valid.samples.json")
    (copy / SUMS_FILE).rename(copy / "kept")
    check_unchanged(copy)
    (copy / "kept").rename(copy / SUMS_FILE)
    (copy / "result.json").unlink()
    check_unchanged(copy)
    run(experiment, copy)
    check_unchanged(copy)
    assert (copy / SUMS_FILE).read_text() != before  # the time that it took
