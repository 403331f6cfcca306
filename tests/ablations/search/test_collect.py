"""A search is copied without checkpoints, and continues where it was copied to."""

from __future__ import annotations

from pathlib import Path

import pytest

from ablations.cli import collect
from ablations.search.collect import copy_ended
from ablations.search.trials import read_trials
from ablations.tables.plan import claim_plan
from experiments.records.progress import RunState
from tests.ablations.samples import small_plan
from tests.ablations.search.samples import bowl, leave, small_search, work_on
from transformer.errors import InputError


def test_what_ended_is_copied_and_the_rest_is_searched_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    search = small_search(source)
    work_on(source, bowl, count=4)
    values = {"learning_rate_factor": 1.0, "warmup_steps": 101}
    leave(search, source / f"{search.names[4]}.attempt-1", values, until=0)
    (source / search.names[0] / "checkpoints").mkdir()
    (source / search.names[3] / "config.json").write_text("{")
    with pytest.warns(UserWarning, match="trial-0003: left out: .*config.json"):
        collect(source, into=target)
    assert capsys.readouterr().out == f"3 runs copied to {target}\n"
    copied = read_trials(search, target)
    assert copied[:3] == read_trials(search, source)[:3]
    assert {trial.state for trial in copied[3:]} == {RunState.WAITING}
    assert not (target / search.names[0] / "checkpoints").exists()

    work_on(target, bowl)
    ended = {trial.state for trial in read_trials(search, target)}
    assert ended <= {RunState.DONE, RunState.PRUNED}
    with pytest.warns(UserWarning, match="left out"):
        assert copy_ended(source, target) == []


def test_runs_of_another_kind_are_not_mixed_in(tmp_path: Path) -> None:
    small_search(tmp_path / "search")
    claim_plan(tmp_path / "table", small_plan())
    with pytest.raises(InputError, match=r"table has other runs \(table.json\)"):
        copy_ended(tmp_path / "search", tmp_path / "table")
