"""However and wherever it is stopped, a run ends bit for bit as it would have ended."""

from __future__ import annotations

import signal
from pathlib import Path
from random import Random

import pytest

from experiments.records.checkpoints import step_checkpoints
from experiments.records.experiment import Experiment
from experiments.records.ownership import claim
from experiments.records.progress import STOPPED_EXIT_CODE
from experiments.run import run
from tests.ablations.runs.processes import Running
from tests.experiments.conftest import Start
from tests.experiments.samples import assert_same_end, tiny_experiment

_STEPS = 90
_KILLS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)


@pytest.fixture(scope="module")
def experiment(folder: Path) -> Experiment:
    """Ten epochs; no interval divides another or an epoch."""
    return tiny_experiment(
        folder, ("valid",), max_steps=_STEPS, checkpoint_every_steps=7, validate_every_steps=11
    )


@pytest.fixture(scope="module")
def undisturbed(
    experiment: Experiment, shared_cache: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    directory = tmp_path_factory.mktemp("undisturbed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DATA_CACHE", str(shared_cache))
        patch.setenv("WANDB_MODE", "disabled")
        run(experiment, directory)
    return directory


def _steps(directory: Path) -> int:
    """The last step that was logged."""
    metrics = directory / "metrics.csv"
    lines = metrics.read_text().splitlines() if metrics.exists() else []
    first = lines[-1].partition(",")[0] if lines else ""
    return int(first) if first.isdigit() else 0


def _start(begin: Start, directory: Path) -> Running:
    return begin("ablations.runs.entry", directory, stdin=None)


def _disturb(begin: Start, directory: Path, *, times: int, seed: int) -> int:
    """Stop the run ``times`` times at random steps; return how often it had ended before."""
    random, late = Random(seed), 0
    for number in range(times):
        stop = _steps(directory) + random.randint(1, max(2, _STEPS // (2 * times)))
        running = _start(begin, directory)
        running.wait_until(lambda stop=stop: _steps(directory) >= stop)
        how = _KILLS[(seed + number) % len(_KILLS)]
        ended = running.finish(how)
        late += ended.code == 0
        assert ended.code in (0, -how if how == signal.SIGKILL else STOPPED_EXIT_CODE), ended
    return late


def test_a_run_killed_repeatedly_ends_as_an_undisturbed_one(
    experiment: Experiment, undisturbed: Path, begin: Start, tmp_path: Path
):
    directory = tmp_path / "run"
    claim(directory, experiment)
    assert _disturb(begin, directory, times=3, seed=0) < 3
    ended = _start(begin, directory).finish()
    assert ended.code == 0, ended
    assert_same_end(directory, undisturbed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 9))
def test_a_run_killed_many_times_ends_as_an_undisturbed_one(
    seed: int, experiment: Experiment, undisturbed: Path, begin: Start, tmp_path: Path
):
    directory = tmp_path / "run"
    claim(directory, experiment)
    _disturb(begin, directory, times=9, seed=seed)
    assert _start(begin, directory).finish().code == 0
    assert_same_end(directory, undisturbed)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_run_after_a_checkpoint_of_its_step(
    number: signal.Signals, experiment: Experiment, begin: Start, tmp_path: Path
):
    directory = tmp_path / "run"
    claim(directory, experiment)
    running = _start(begin, directory)
    running.wait_until(lambda: _steps(directory) >= 15)
    ended = running.finish(number)
    assert ended.code == STOPPED_EXIT_CODE
    saved, _ = step_checkpoints(directory)[-1]
    assert saved == _steps(directory)
    assert ended.lines[-1] == f"stopped at step {saved}; the same command continues there"
