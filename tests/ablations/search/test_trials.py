"""The best trial as an experiment that can be trained."""

from __future__ import annotations

from pathlib import Path

import pytest

from ablations.search.search import Search, claim_search, make_search
from ablations.search.spaces import BASE_LR
from ablations.search.trials import read_trials, write_best
from ablations.tables.scales import SMALL
from experiments.catalog.find import find_experiment
from experiments.records.experiment import load_experiment
from tests.ablations.search.samples import leave, small_search

NAME = "base_lr-small-best"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory that a search at the scale ``small`` has by default."""
    monkeypatch.chdir(tmp_path)
    return Path("runs") / "base_lr-small"


def searched_small(root: Path) -> Search:
    """A search of which two trials have finished, the second the better."""
    search = claim_search(root, make_search(BASE_LR, SMALL, trials=5, seed=7))
    for number, perplexity in enumerate((3.5, 3.0)):
        values = {"learning_rate_factor": 0.1 + 0.2 * (number + 1), "warmup_steps": 101 + number}
        leave(search, root / f"trial-000{number}", values, perplexity=perplexity)
    write_best(search, read_trials(search, root), root)
    return search


def test_the_best_is_found_by_its_file_exactly_as_it_was_trained(root: Path) -> None:
    search = searched_small(root)
    trained = load_experiment(root / "trial-0001").config
    found = find_experiment(str(root / "best.json"))
    assert (found.name, found.config) == (NAME, trained)
    assert found.description == (
        "Learning rate and warm-up, the best of 2 trials at scale small: trial-0001, "
        "perplexity 3.000"
    )
    better = {"learning_rate_factor": 0.3, "warmup_steps": 103}
    leave(search, root / "trial-0002", better, perplexity=2.9)
    write_best(search, read_trials(search, root), root)
    assert find_experiment(str(root / "best.json")).config.training.warmup_steps == 103


def test_there_is_no_best_before_a_trial_has_finished(tmp_path: Path) -> None:
    search = small_search(tmp_path)
    write_best(search, read_trials(search, tmp_path), tmp_path)
    assert not (tmp_path / "best.json").exists()
