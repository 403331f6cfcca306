"""What is sent to Weights & Biases, and that a dead network stops nothing."""

from __future__ import annotations

import csv
import dataclasses
import http.server
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import wandb
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from wandb.errors import CommError

import experiments.wandb_runs
from experiments.records.attempt import wandb_id, write_attempt
from experiments.records.checkpoints import step_checkpoints
from experiments.records.experiment import Limits, Log
from experiments.records.outputs import read_samples
from experiments.records.provenance import commit
from experiments.records.result import Result, load_result
from experiments.run import run
from experiments.tracking import Tracking
from experiments.wandb_runs import track_table, tracking_mode
from tests.experiments.conftest import Command
from tests.experiments.records.test_records import ATTEMPT
from tests.experiments.samples import tiny_experiment
from transformer.config import to_dict
from transformer.errors import InputError

_KEY = "0123456789abcdef0123456789abcdef01234567"


def _inspect(directory: Path, *options: str) -> str:
    (file,) = directory.glob("wandb/*run-*/run-*.wandb")
    return _inspect_file(file, *options)


def _inspect_file(file: Path, *options: str) -> str:
    wandb_command = Path(sys.executable).with_name("wandb")
    return subprocess.run(
        [wandb_command, "leet", "inspect", *options, "--json", file],
        capture_output=True,
        text=True,
        check=True,
    ).stdout


@pytest.fixture(scope="module")
def summary(finished: Path) -> dict[str, Any]:
    return json.loads(_inspect(finished, "--summary"))


@pytest.fixture(scope="module")
def records(finished: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in _inspect(finished).splitlines()]


def test_the_run_has_its_names_its_configuration_and_the_commit(
    records: list[dict[str, Any]], summary: dict[str, Any], folder: Path
):
    (run,) = (record["run"] for record in records if record["type"] == "run")
    assert (run["run_group"], run["job_type"]) == ("tests/tiny", "train")
    assert (run["tags"], run["display_name"]) == (["tiny", "numbers"], "numbers-seed3")
    config = tiny_experiment(folder).config
    expected = {
        **to_dict(config.model),
        **to_dict(config.data),
        **to_dict(config.training),
        **to_dict(config.decoding),
        "corpus": config.data.corpus.name,
        "experiment": "numbers",
        "commit": commit(),
    }
    assert summary["config"] == expected  # nothing nested, so that W&B can filter by it


def test_the_summary_is_the_result(summary: dict[str, Any], finished: Path):
    assert summary["state"] == "finished"
    result = load_result(finished)
    assert result is not None
    for name, value in dataclasses.asdict(result).items():
        expected = pytest.approx(value) if isinstance(value, float) else value
        assert summary["summary"].get(name) == expected, name  # W&B keeps no None


def test_the_history_holds_the_metrics_under_names_of_their_own(
    records: list[dict[str, Any]], finished: Path
):
    history = [r["history"]["item"] for r in records if r["type"] == "history"]
    losses = [item["loss"] for item in history if "loss" in item]
    lines = (finished / "metrics.csv").read_text().splitlines()[1:]
    expected = [float(line.split(",")[1]) for line in lines if line.split(",")[1]]
    assert losses == pytest.approx(expected, rel=1e-5)
    steps = [item["trainer/global_step"] for item in history if "loss" in item]
    assert steps == [int(line.split(",")[0]) for line in lines if line.split(",")[1]]
    result = load_result(finished)
    assert result is not None
    assert [x["tokens_seen"] for x in history if "tokens_seen" in x][-1] == result.target_tokens
    logged = {name for item in history for name in item}
    assert {"train_perplexity", "valid_perplexity"} <= logged
    speeds = [item["train_tokens_per_second"] for item in history if "loss" in item]
    assert len(speeds) == len(losses) and all(speed > 0 for speed in speeds)
    assert not logged & {field.name for field in dataclasses.fields(Result)}


class _Quiet(http.server.BaseHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@pytest.fixture
def answering() -> Iterator[str]:
    """A server that answers at once, though not as W&B would."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Quiet) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def closed() -> str:
    """A port on which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"http://127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize(
    ("asked", "mode"),
    [
        ({}, "offline"),
        ({"WANDB_MODE": "disabled"}, "disabled"),
        ({"WANDB_MODE": "online"}, "online"),
        ({"WANDB_API_KEY": _KEY}, "online"),
    ],
)
def test_tracking_is_offline_unless_asked_for_more(
    asked: dict[str, str], mode: str, answering: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("WANDB_MODE")
    monkeypatch.setenv("WANDB_BASE_URL", answering)
    for name, value in asked.items():
        monkeypatch.setenv(name, value)
    assert tracking_mode() == mode


def test_a_silent_server_is_noticed_within_seconds_and_means_offline(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(experiments.wandb_runs, "_PROBE_SECONDS", 0.5)
    monkeypatch.setenv("WANDB_MODE", "online")
    started = time.monotonic()
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        pytest.warns(UserWarning, match="does not answer: tracking offline"),
    ):
        monkeypatch.setenv("WANDB_BASE_URL", f"http://127.0.0.1:{server.getsockname()[1]}")
        assert tracking_mode() == "offline"
    assert time.monotonic() - started < 5


def test_a_run_without_a_network_is_tracked_offline(
    folder: Path, command: Command, closed: str, tmp_path: Path
):
    directory = tmp_path / "run"
    ended = command(
        "experiments", "train", f"files:{folder}", "--directory", directory,
        "--vocab-size", "61", "--max-steps", "1", "--set", "max_extra_length=5",
        WANDB_MODE="online", WANDB_API_KEY=_KEY, WANDB_BASE_URL=closed,
    )  # fmt: skip
    assert ended.code == 0
    assert ended.lines[0] == "warning: W&B's server does not answer: tracking offline"
    assert not [line for line in ended.lines[1:] if "wandb" in line]
    assert json.loads(_inspect(directory, "--summary"))["state"] == "finished"


class _Init:
    """Stands in for ``wandb.init``: keeps its arguments, and fails in some modes."""

    def __init__(self, *failing: str) -> None:
        self.failing, self.given = failing, list[dict[str, Any]]()
        self._init = wandb.init

    def __call__(self, **given: Any) -> Any:
        self.given.append(given)
        if given["mode"] in self.failing:
            raise CommError("no\nsuch key")
        return self._init(mode="disabled")


@pytest.mark.parametrize("fails", [("online",), ("online", "offline")])
def test_a_failed_start_of_wandb_does_not_stop_the_run(
    fails: tuple[str, ...],
    answering: str,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.setenv("WANDB_BASE_URL", answering)
    init = _Init(*fails)
    monkeypatch.setattr(wandb, "init", init)
    with (
        pytest.warns(UserWarning, match="W&B does not start in mode (online|offline): no such key"),
        Tracking(tiny_experiment(folder), tmp_path) as tracking,
    ):
        assert len(tracking.loggers(0)) == (len(fails) == 1)
    assert [given["mode"] for given in init.given] == ["online", "offline"]


def test_a_silent_server_delays_the_end_only_for_a_while(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(experiments.wandb_runs, "_FINISH_SECONDS", 0.1)
    release = threading.Event()
    with (
        pytest.warns(UserWarning, match="W&B does not answer: sync its folder later"),
        Tracking(tiny_experiment(folder), tmp_path) as tracking,
    ):
        monkeypatch.setattr(tracking._run, "finish", release.wait)
    release.set()


def test_a_resumed_run_continues_its_wandb_run(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    init = _Init()
    monkeypatch.setattr(wandb, "init", init)
    for _ in range(2):
        with Tracking(tiny_experiment(folder), tmp_path):
            pass
    first, second = (given["id"] for given in init.given)
    assert first and first == second


def test_each_attempt_has_its_own_wandb_run_which_names_the_one_before(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    init = _Init()
    monkeypatch.setattr(wandb, "init", init)
    experiment = dataclasses.replace(
        tiny_experiment(folder), labels={"row": "A-h1"}, reported={"bleu": 24.9}
    )
    ids: list[str] = []
    for number in (1, 2):
        write_attempt(tmp_path, dataclasses.replace(ATTEMPT, number=number, wandb_ids=tuple(ids)))
        with Tracking(experiment, tmp_path) as tracking:
            assert tracking._run is not None
            assert dict(tracking._run.summary) == {"paper/bleu": 24.9}
        last = wandb_id(tmp_path)
        assert last is not None
        ids.append(last)
    assert [given["id"] for given in init.given] == ids
    assert ids[0] != ids[1]
    first, second = (given["config"] for given in init.given)
    assert (first["resumed_from"], second["resumed_from"]) == (None, ids[0])
    assert (second["cell"], second["row"]) == ("base/seed-1", "A-h1")
    assert (second["attempt"], second["host"]) == (2, "node7")
    assert init.given[1]["name"] == "numbers-seed3-attempt2"
    assert {given["group"] for given in init.given} == {"tests/tiny"}


def test_a_table_refused_by_wandb_is_a_warning(tmp_path: Path):
    with pytest.warns(UserWarning, match="W&B does not take the table: "):
        track_table(
            tmp_path, "table3-quick", ["row", "BLEU"], [["base"]],
            figures={}, config={}, group="table3-quick", tags=(),
        )  # fmt: skip


def _csv_figures(directory: Path) -> dict[int, dict[str, float]]:
    """The training figures by step; each step may be there once."""
    found: dict[int, dict[str, float]] = {}
    with (directory / "csv" / "metrics.csv").open() as file:
        for line in csv.DictReader(file):
            if line["loss"]:
                assert int(line["step"]) not in found
                found[int(line["step"])] = {k: float(v) for k, v in line.items() if v}
    return found


def _tensorboard_figures(directory: Path) -> dict[int, dict[str, float]]:
    events = EventAccumulator(str(directory / "tensorboard"))
    events.Reload()
    found: dict[int, dict[str, float]] = {}
    for name in ("loss", "tokens_seen"):
        for event in events.Scalars(name):
            figures = found.setdefault(event.step, {})
            assert figures.setdefault(name, event.value) == event.value
    return {step: figures for step, figures in found.items() if "loss" in figures}


@pytest.mark.parametrize(
    ("log", "read"), [("csv", _csv_figures), ("tensorboard", _tensorboard_figures)]
)
def test_other_loggers_have_each_step_once_after_a_resume(
    log: Log,
    read: Callable[[Path], dict[int, dict[str, float]]],
    folder: Path,
    tmp_path: Path,
):
    experiment = tiny_experiment(
        folder, max_steps=6, checkpoint_every_steps=2, validate_every_steps=3
    )
    run(experiment, tmp_path, log=log, limits=Limits(max_steps=4))
    assert list(read(tmp_path)) == [1, 2, 3, 4]
    _, newest = step_checkpoints(tmp_path)[-1]
    newest.unlink()  # as if it had been killed after step 4, before the checkpoint
    result = run(experiment, tmp_path, log=log)
    assert result is not None
    found = read(tmp_path)
    assert list(found) == [1, 2, 3, 4, 5, 6]
    assert found[6]["tokens_seen"] == result.target_tokens
    lines = (tmp_path / "metrics.csv").read_text().splitlines()[1:]
    losses = {int(x.split(",")[0]): float(x.split(",")[1]) for x in lines if x.split(",")[1]}
    assert {step: x["loss"] for step, x in found.items()} == pytest.approx(losses, rel=1e-5)
    assert not (tmp_path / "wandb").exists()


def test_missing_tensorboard_is_said_before_anything_starts(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"tensorboard is not installed: .*\.\[tensorboard\]"):
        Tracking(tiny_experiment(folder), tmp_path, "tensorboard")


def test_the_best_and_the_worst_translations_are_a_table(finished: Path) -> None:
    (path,) = finished.rglob("media/table/samples/valid*.table.json")
    table = json.loads(path.read_text())
    assert table["columns"] == ["chrf", "source", "reference", "translation"]
    expected = [
        [x.chrf, x.source, x.reference, x.translation] for x in read_samples(finished, "valid")
    ]
    assert table["data"] == expected and isinstance(table["data"][0][0], float)
