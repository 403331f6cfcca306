"""``ablations status`` as a user calls it."""

from __future__ import annotations

import json
import os
from datetime import datetime
from pathlib import Path

import pytest

from ablations.runs import identity
from ablations.status import command
from ablations.status.command import show_status
from ablations.status.model import to_json
from ablations.tables.plan import claim_plan
from ablations.tables.table import Cell
from tests.ablations.samples import finish, small_plan
from tests.ablations.status.samples import begin, training
from transformer.files import write_json


@pytest.fixture
def root(tmp_path: Path) -> Path:
    claim_plan(tmp_path, small_plan())
    finish(tmp_path, Cell("base", 1))
    return tmp_path


def test_the_json_object_has_the_documented_keys(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    begin(root, "narrow/seed-1", training(400, loss=2.5), devices=(3,))
    assert show_status(root, watch=False, as_json=True) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found) == {"title", "at", "seconds_left", "counts", "hosts", "runs"}
    assert found["counts"] == {"done": 1, "running": 1}
    assert found["hosts"][0]["name"] == "node-a"
    done, running = found["runs"]
    assert (done["scores"]["perplexity"], done["step"], done["failures"]) == (3.0, None, [])
    assert (running["stage"], running["step"], running["loss"]) == ("train", 400, 2.5)
    promised = to_json.__doc__ or ""
    assert all(f"``{name}``" in promised for name in (*found, *running))


@pytest.mark.parametrize("as_json", [True, False])
def test_watching_ends_when_all_is_done(
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    as_json: bool,
) -> None:
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 2:
            finish(root, Cell("narrow", 1))

    monkeypatch.setattr(command.time, "sleep", wait)
    assert show_status(root, watch=True, as_json=as_json) == 0
    assert waits == [1.0, 1.0]
    lines = capsys.readouterr().out.splitlines()
    if as_json:
        assert [json.loads(line)["counts"].get("done") for line in lines] == [1, 1, 2]
    else:
        first, last = lines[0], lines[-3]
        assert first == "pair at scale tiny: 1 of 2 done, 1 waiting, nobody works on it"
        assert last == "pair at scale tiny: 2 of 2 done"


def test_a_driver_that_has_begun_is_starting(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def say(name: str, since: str) -> str:
        write_json(root / ".driver.json", {"process": name, "since": since})
        show_status(root, watch=False, as_json=False)
        return capsys.readouterr().out.splitlines()[0].rpartition(", ")[2]

    (root / ".driver.lock").touch()
    ours, now = identity.own_name(), datetime.now().astimezone().isoformat()
    assert say(ours, now) == "the driver is starting"
    assert say(ours.replace(f":{os.getpid()}:", ":999999:"), now) == "nobody works on it"
    assert say("node-b:1:2:3", now) == "the driver is starting"
    assert say("node-b:1:2:3", "2026-01-01T00:00:00+00:00") == "nobody works on it"
