"""The queue: whatever happened to the study, what is queued is what has no result."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import optuna
import pytest
from optuna.storages import RDBStorage
from optuna.trial import TrialState
from sqlalchemy.engine import URL

from ablations.runner.attempts import record_failure, take_over
from ablations.runner.identity import name_of, own_name
from ablations.runner.queue import Claim, Queue, description
from ablations.tables.plan import claim_plan
from ablations.tables.runs import TableRuns
from ablations.tables.table import Cell
from experiments.run.attempt import Attempt, write_attempt
from tests.ablations.runner.conftest import OpenStorage
from tests.ablations.samples import finish, small_plan
from transformer.config import to_dict

NAMES = ["base/seed-1", "base/seed-2", "narrow/seed-1", "narrow/seed-2"]


class Fleet:
    """Workers of one table in one process."""

    def __init__(self, root: Path, open_new: Callable[[], RDBStorage]) -> None:
        claim_plan(root, small_plan(["base", "narrow"], [1, 2]))
        self.root, self._open = root, open_new
        self.leader = self.worker()
        self._looker = open_new()

    def worker(self, name: str | None = None) -> Queue:
        return Queue(self._open(), TableRuns(self.root), name or own_name())

    def reconcile(self, *, judge: bool = False, still_leads: bool = True) -> None:
        self.leader.reconcile(judge=judge, may_continue=lambda: still_leads)

    def states(self) -> Counter[str]:
        work = TableRuns(self.root)
        study = optuna.load_study(study_name=work.study, storage=self._looker)
        return Counter(trial.state.name for trial in study.trials)


@pytest.fixture
def fleet(tmp_path: Path, url: URL, open_: OpenStorage) -> Fleet:
    return Fleet(tmp_path, lambda: open_(url))


def drain(queue: Queue) -> Iterator[str]:
    while (claim := take(queue)) is not None:
        yield claim.name


def take(queue: Queue) -> Claim | None:
    return queue.take(lambda name: True)


def must_take(queue: Queue) -> Claim:
    claim = take(queue)
    assert claim is not None
    return claim


def test_runs_are_claimed_once_the_longest_first(fleet: Fleet) -> None:
    for _ in range(2):
        fleet.reconcile()
    assert list(drain(fleet.worker())) == NAMES
    fleet.reconcile()
    assert list(drain(fleet.leader)) == []


def test_a_worker_that_lost_the_lease_queues_nothing(fleet: Fleet) -> None:
    fleet.reconcile(still_leads=False)
    assert fleet.states() == {}


def test_a_worker_claims_only_wanted_runs(fleet: Fleet) -> None:
    fleet.reconcile()
    claim = fleet.leader.take(lambda name: name.startswith("narrow"))
    assert claim is not None and claim.name == "narrow/seed-1"


def test_many_workers_claim_each_run_once(fleet: Fleet) -> None:
    fleet.reconcile()
    queues, taken = [fleet.worker() for _ in range(4)], list[str]()
    start = threading.Barrier(4)

    def work(queue: Queue) -> None:
        start.wait()
        taken.extend(drain(queue))

    threads = [threading.Thread(target=work, args=(queue,)) for queue in queues]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(taken) == NAMES


def test_results_on_disk_are_imported_into_a_new_study(fleet: Fleet) -> None:
    finish(fleet.root, Cell("base", 1), perplexity=4.5, bleu=26.25)
    fleet.reconcile()
    assert fleet.states() == {"COMPLETE": 1, "WAITING": 3}
    fleet.reconcile()
    assert fleet.states() == {"COMPLETE": 1, "WAITING": 3}


def test_a_finished_run_has_its_figures_in_the_study(fleet: Fleet) -> None:
    fleet.reconcile()
    claim = must_take(fleet.leader)
    finish(fleet.root, Cell("base", 1), perplexity=4.5, bleu=26.25)
    fleet.leader.complete(claim)
    fleet.reconcile()
    assert fleet.states() == {"COMPLETE": 1, "WAITING": 3}
    assert claim.trial.study.trials[claim.trial.number].values == [4.5, 26.25]


def test_a_worker_that_died_here_is_replaced_at_once(fleet: Fleet) -> None:
    process = subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE)
    dead = fleet.worker(name_of(process.pid))
    fleet.reconcile()
    assert [must_take(dead).name, must_take(dead).name] == NAMES[:2]
    finish(fleet.root, Cell("base", 2))  # its process outlived the worker
    fleet.reconcile()
    assert fleet.states() == {"RUNNING": 2, "WAITING": 2}
    process.communicate()
    fleet.reconcile()
    assert fleet.states() == {"FAIL": 1, "COMPLETE": 1, "WAITING": 3}
    assert list(drain(fleet.leader)) == ["base/seed-1", "narrow/seed-1", "narrow/seed-2"]


def test_a_silent_worker_elsewhere_is_replaced(fleet: Fleet) -> None:
    silent, lively = fleet.worker("far:1:2:aaaaaaaa"), fleet.worker("near:1:2:bbbbbbbb")
    fleet.reconcile()
    lost, kept = must_take(silent), must_take(lively)
    for _ in range(4):
        time.sleep(1)
        assert lively.beat(kept, {"step": 3})
        fleet.reconcile()
    assert fleet.states()["FAIL"] == 0  # nobody judges who has just come
    fleet.reconcile(judge=True)
    assert fleet.states() == {"FAIL": 1, "RUNNING": 1, "WAITING": 3}
    assert must_take(fleet.leader).name == lost.name
    assert not silent.beat(lost, {"step": 4})
    assert lively.beat(kept, {})


def test_a_worker_that_comes_back_changes_nothing(fleet: Fleet) -> None:
    late = fleet.worker("far:1:2:aaaaaaaa")
    fleet.reconcile()
    claim = must_take(late)
    time.sleep(3)
    fleet.reconcile(judge=True)
    again = must_take(fleet.leader)
    late.fail(claim, "too late")
    late.complete(claim)
    assert fleet.states() == {"FAIL": 1, "RUNNING": 1, "WAITING": 3}
    fleet.leader.fail(again, "stopped")
    fleet.reconcile()
    assert fleet.states() == {"FAIL": 2, "WAITING": 4}


def test_a_run_that_was_given_up_is_not_queued(fleet: Fleet) -> None:
    directory = take_over(fleet.root / "base" / "seed-1", lambda: False)
    assert directory is not None
    begun = Attempt(study="s", cell="c", number=1, worker="w", host="h", started_at=1.0)
    write_attempt(directory, begun)
    record_failure(directory, "broke", [], killed=False, retries=0)
    fleet.reconcile()
    assert list(drain(fleet.leader)) == NAMES[1:]
    assert fleet.leader.is_given_up("base/seed-1")
    assert not fleet.leader.is_given_up("base/seed-2")


def test_a_result_that_diverged_does_not_break_the_study(fleet: Fleet) -> None:
    fleet.reconcile()
    claim = must_take(fleet.leader)
    finish(fleet.root, Cell("base", 1), perplexity=float("nan"))
    fleet.leader.complete(claim)
    fleet.reconcile()
    assert fleet.states() == {"FAIL": 1, "WAITING": 3}


def test_a_run_that_two_leaders_queued_runs_once(fleet: Fleet) -> None:
    fleet.reconcile()
    study = must_take(fleet.leader).trial.study
    study.enqueue_trial({}, user_attrs={"cell": "base/seed-1"})
    study.enqueue_trial({}, user_attrs={"cell": "base/seed-2"})
    assert list(drain(fleet.worker())) == NAMES[1:]
    fleet.reconcile()
    assert fleet.states() == {"RUNNING": 4, "FAIL": 2}


def test_another_programs_trials_are_left_alone(fleet: Fleet) -> None:
    fleet.reconcile()
    study = must_take(fleet.leader).trial.study
    for _ in range(2):
        study.enqueue_trial({})
    fleet.reconcile()
    assert list(drain(fleet.leader)) == NAMES[1:]
    assert fleet.states() == {"RUNNING": 4, "WAITING": 2}


def test_optuna_dashboard_is_shown_names_rows_and_settings(fleet: Fleet) -> None:
    fleet.reconcile()
    study = must_take(fleet.leader).trial.study
    finish(fleet.root, Cell("base", 2))
    fleet.reconcile()
    assert study.metric_names == ["validation perplexity", "validation BLEU"]
    assert study.user_attrs == {"table": "pair at scale tiny"}
    assert description(study) == to_dict(TableRuns(fleet.root).plan)
    shown = {x.user_attrs["cell"]: x.user_attrs for x in study.trials}
    assert (shown["narrow/seed-1"]["row"], shown["narrow/seed-1"]["seed"]) == ("narrow", 1)
    assert shown["narrow/seed-1"]["positions"] == "sinusoidal"
    claimed, ended = (x for x in study.trials if x.params)
    assert (claimed.state, ended.state) == (TrialState.RUNNING, TrialState.COMPLETE)
    config = TableRuns(fleet.root).plan.configs["base"]
    assert claimed.params == ended.params
    assert claimed.params == {"d_ff": config.model.d_ff}


def test_a_study_of_an_older_version_is_continued(fleet: Fleet) -> None:
    work = TableRuns(fleet.root)
    study = optuna.load_study(study_name=work.study, storage=fleet._looker)
    study.set_user_attr("table", to_dict(work.plan))
    study.enqueue_trial({}, user_attrs={"cell": "base/seed-1"})
    fleet.reconcile()
    assert fleet.states() == {"WAITING": 4}
    assert study.user_attrs == {"table": "pair at scale tiny"}
    assert description(study) == to_dict(work.plan)
