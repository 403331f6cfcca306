"""Figures reach W&B and TensorBoard, and a dead network stops nothing."""

from __future__ import annotations

import dataclasses
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import wandb
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from wandb.errors import CommError

import experiments.tracking
from experiments.records.attempt import Attempt, wandb_id, write_attempt
from experiments.records.experiment import Experiment, Limits
from experiments.records.outputs import read_samples, step_checkpoints
from experiments.records.provenance import commit
from experiments.records.result import load_result
from experiments.records.run import read_run
from experiments.run import run
from experiments.tracking import Tracking, track_table, tracking_mode
from tests.ablations.tracking.conftest import FakeWandb, server
from tests.experiments.samples import result_of, tiny_experiment
from transformer.config import to_dict

__all__ = ["server"]

_KEY = "0123456789abcdef0123456789abcdef01234567"
ATTEMPT = Attempt(cell="base/seed-1", number=1, worker="f00d", host="node7", started_at=1.5)


class _Init:
    """Stands in for ``wandb.init``: keeps its arguments, and fails in some modes."""

    def __init__(self) -> None:
        self.failing, self.given = set[str](), list[dict[str, Any]]()
        self._init = wandb.init

    def __call__(self, **given: Any) -> Any:
        self.given.append(given)
        if given["mode"] in self.failing:
            raise CommError("no\nsuch key")
        return self._init(mode="disabled")


@pytest.fixture
def init(monkeypatch: pytest.MonkeyPatch) -> _Init:
    init = _Init()
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setattr(wandb, "init", init)
    return init


def _inspect(directory: Path, *options: str) -> str:
    (file,) = directory.glob("wandb/*run-*/run-*.wandb")
    command = [Path(sys.executable).with_name("wandb"), "leet", "inspect", "--json", *options, file]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_a_run_has_its_configuration_its_history_and_its_result(
    finished: Path, experiment: Experiment
):
    records = [json.loads(line) for line in _inspect(finished).splitlines()]
    (said,) = (record["run"] for record in records if record["type"] == "run")
    assert (said["run_group"], said["job_type"]) == ("tests/tiny", "train")
    assert (said["tags"], said["display_name"]) == (["tiny", "numbers"], "numbers-seed3")
    summary = json.loads(_inspect(finished, "--summary"))
    config = experiment.config
    assert summary["config"] == {  # nothing nested, so that W&B can filter by it
        **to_dict(config.model),
        **to_dict(config.data),
        **to_dict(config.training),
        **to_dict(config.decoding),
        "corpus": config.data.corpus.name,
        "experiment": "numbers",
        "commit": commit(),
    }
    result = load_result(finished)
    assert summary["state"] == "finished" and result is not None
    for name, value in dataclasses.asdict(result).items():
        expected = pytest.approx(value) if isinstance(value, float) else value
        if expected != {}:  # which W&B keeps no more than None
            assert summary["summary"].get(name) == expected, name
    history = [r["history"]["item"] for r in records if r["type"] == "history"]
    losses = {x["trainer/global_step"]: x["loss"] for x in history if "loss" in x}
    assert losses == pytest.approx(read_run(finished).losses, rel=1e-5)
    assert [x["tokens_seen"] for x in history if "tokens_seen" in x][-1] == result.target_tokens
    assert all(x["train_tokens_per_second"] > 0 for x in history if "loss" in x)
    assert "valid_perplexity" in {name for item in history for name in item}
    (table,) = finished.glob("wandb/*run-*/files/media/table/samples/valid_*.table.json")
    columns = [*to_dict(read_samples(finished, "valid")[0])]
    assert json.loads(table.read_text())["columns"] == columns


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
    asked: dict[str, str], mode: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("WANDB_MODE")
    monkeypatch.setattr(experiments.tracking, "answers", lambda server: True)
    for name, value in asked.items():
        monkeypatch.setenv(name, value)
    assert tracking_mode() == mode


@pytest.mark.parametrize("listens", [True, False])
def test_a_server_that_does_not_answer_is_noticed_within_seconds_and_means_offline(
    listens: bool, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(experiments.tracking, "_PROBE_SECONDS", 0.2)
    monkeypatch.setenv("WANDB_API_KEY", _KEY)
    monkeypatch.delenv("WANDB_MODE")
    started = time.monotonic()
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setenv("WANDB_BASE_URL", f"http://127.0.0.1:{server.getsockname()[1]}")
        if not listens:
            server.close()
        with pytest.warns(UserWarning, match="does not answer: tracking offline"):
            assert tracking_mode() == "offline"
    assert time.monotonic() - started < 10


TRACKED = """
from pathlib import Path
from experiments.command_line import prepare_streams
from experiments.tracking import track_table
prepare_streams()
track_table(Path("table"), ["row"], [["base"]], {}, name="t", group="g", tags=(), config={})
"""
EMPTY = ("MODE", "API_KEY", "PROJECT", "ENTITY", "DIR", "SILENT", "TAGS", "SERVICE")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({f"WANDB_{name}": "" for name in EMPTY} | {"WANDB_BASE_URL": "URL"}, ""),
        ({"WANDB_API_KEY": _KEY}, "warning: W&B's server does not answer: tracking offline\n"),
    ],
    ids=["empty", "key"],
)
def test_nothing_leaves_the_machine_unless_asked_and_settings_of_a_folder_are_not_read(
    given: dict[str, str], said: str, server: FakeWandb, tmp_path: Path
):
    """The working directory, which may be somebody else's, names a server."""
    (tmp_path / "wandb").mkdir()
    settings = f"[default]\nmode = online\nbase_url = {server.url}\n"
    (tmp_path / "wandb" / "settings").write_text(settings)
    (tmp_path / "table").mkdir()
    inherited = {name: x for name, x in os.environ.items() if not name.startswith("WANDB_")}
    given = {name: value.replace("URL", server.url) for name, value in given.items()}
    proxy = "http://127.0.0.1:9"  # where nobody listens
    ended = subprocess.run(
        [sys.executable, "-c", TRACKED],
        cwd=tmp_path,
        env={**inherited, **given, "HTTPS_PROXY": proxy, "NO_PROXY": "127.0.0.1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert server.requests == []
    assert len([*tmp_path.glob("table/wandb/offline-run-*/run-*.wandb")]) == 1
    assert ended.stderr == said


@pytest.mark.parametrize("fails", [{"online"}, {"online", "offline"}])
def test_a_failed_start_of_wandb_does_not_stop_the_run(
    fails: set[str], init: _Init, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.setattr(experiments.tracking, "answers", lambda server: True)
    init.failing = fails
    with (
        pytest.warns(UserWarning, match="W&B does not start in mode (online|offline): no such key"),
        closing(Tracking(tiny_experiment(folder), tmp_path)) as tracking,
    ):
        assert len(tracking.loggers(0)) == (len(fails) == 1)
    assert [given["mode"] for given in init.given] == ["online", "offline"]


def test_settings_that_wandb_refuses_do_not_stop_the_run(
    experiment: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.setenv("WANDB_INIT_TIMEOUT", "abc")
    with (
        pytest.warns(
            UserWarning, match=r"W&B('s settings cannot be read|.* mode offline): 1 valid"
        ),
        closing(Tracking(experiment, tmp_path)) as tracking,
    ):
        assert tracking.loggers(0) == []


def test_a_run_that_wandb_refuses_after_its_start_trains_without_it(
    init: _Init, experiment: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def start(**given: Any) -> Any:
        run = init(**given)
        monkeypatch.setattr(run, "define_metric", _broken)
        return run

    monkeypatch.setattr(wandb, "init", start)
    with (
        pytest.warns(UserWarning, match="W&B does not take the run: Conn"),
        closing(Tracking(experiment, tmp_path)) as tracking,
    ):
        assert tracking.loggers(0) == []
    assert len(init.given) == 1


def _broken(*_: Any, **__: Any) -> None:
    raise ConnectionResetError("Connection lost")


def _silent() -> None:
    time.sleep(1)


FAILURES: dict[str, tuple[str, Callable[..., None]]] = {
    "W&B failed, so it gets no more of this run: Conn": ("log", _broken),
    "W&B does not answer: sync its folder later": ("finish", _broken),
    "W&B does not answer: sync": ("finish", _silent),
}


@pytest.mark.usefixtures("init")
@pytest.mark.parametrize("said", FAILURES)
def test_a_service_that_is_killed_or_silent_stops_no_run(
    said: str, experiment: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(experiments.tracking, "_FINISH_SECONDS", 0.1)
    with (
        pytest.warns(UserWarning, match=said) as warned,
        closing(Tracking(experiment, tmp_path)) as tracking,
    ):
        monkeypatch.setattr(tracking._run, *FAILURES[said])
        (logger,) = tracking.loggers(0)
        for step in (1, 2):
            logger.log_metrics({"loss": 2.5}, step)
    assert len(warned) == 1


def test_a_resumed_run_continues_its_wandb_run_and_an_attempt_names_the_one_before(
    init: _Init, experiment: Experiment, tmp_path: Path
):
    experiment = dataclasses.replace(experiment, labels={"row": "A-h1"}, reported={"bleu": 24.9})
    experiment = dataclasses.replace(experiment, tags=("x" * 100,))
    ids: list[str] = []
    for number in (None, None, 1, 2):
        if number is not None:
            write_attempt(tmp_path, dataclasses.replace(ATTEMPT, number=number))
        with closing(Tracking(experiment, tmp_path)) as tracking:
            assert tracking._run is not None
            assert dict(tracking._run.summary) == {"paper/bleu": 24.9}
        last = wandb_id(tmp_path)
        assert last is not None
        ids.append(last)
    assert [given["id"] for given in init.given] == ids
    assert ids[0] == ids[1] and len(set(ids)) == 3
    first, second = (given["config"] for given in init.given[2:])
    assert (first["resumed_from"], second["resumed_from"]) == (ids[1], ids[2])
    assert (second["cell"], second["row"]) == ("base/seed-1", "A-h1")
    assert (second["attempt"], second["host"]) == (2, "node7")
    assert init.given[3]["name"] == "numbers-seed3-attempt2"
    assert wandb.Settings(run_tags=tuple(init.given[3]["tags"])).run_tags == ("x" * 64,)


def test_a_disabled_wandb_is_not_started(experiment: Experiment, tmp_path: Path):
    with closing(Tracking(experiment, tmp_path)) as tracking:
        assert tracking.loggers(0) == []
    assert wandb_id(tmp_path) is None


@pytest.mark.usefixtures("init")
def test_a_table_refused_by_wandb_is_a_warning(tmp_path: Path):
    with pytest.warns(UserWarning, match="W&B does not take the table: "):
        track_table(
            tmp_path, ["row", "BLEU"], [["base"]], {}, name="table3", config={}, group="", tags=()
        )


@pytest.mark.slow
def test_tensorboard_has_each_step_once_after_a_resume(folder: Path, tmp_path: Path):
    experiment = tiny_experiment(
        folder, max_steps=6, checkpoint_every_steps=2, validate_every_steps=3
    )
    run(experiment, tmp_path, log="tensorboard", limits=Limits(max_steps=4))
    _, newest = step_checkpoints(tmp_path)[-1]
    newest.unlink()  # as if it had been killed after step 4, before the checkpoint
    result = result_of(experiment, tmp_path, log="tensorboard")
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    losses = {event.step: event.value for event in events.Scalars("loss")}
    assert losses == pytest.approx(read_run(tmp_path).losses, rel=1e-5)
    assert events.Scalars("tokens_seen")[-1].value == result.target_tokens
    assert not (tmp_path / "wandb").exists()
