"""The best trial as an experiment that can be trained."""

from __future__ import annotations

from pathlib import Path

import pytest

from ablations.search.search import Search, claim_search, make_search
from ablations.search.spaces import BASE_LR
from ablations.search.trials import read_trials, write_best
from ablations.tables.scales import SMALL
from experiments import cli
from experiments.catalog.find import find_experiment, searched
from experiments.records.experiment import load_experiment
from tests.ablations.search.samples import leave, small_search
from transformer.config import override
from transformer.errors import InputError

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


def test_the_best_is_found_by_name_and_by_file_exactly_as_it_was_trained(root: Path) -> None:
    search = searched_small(root)
    trained = load_experiment(root / "trial-0001").config
    for found in (find_experiment(NAME), find_experiment(str(root / "best.json"))):
        assert found.name == NAME
        assert found.config == trained
    assert find_experiment(NAME, seed=2).config == override(trained, seed=2)
    assert find_experiment(NAME).description == (
        "Learning rate and warm-up, the best of 2 trials at scale small: trial-0001, "
        "perplexity 3.000"
    )
    better = {"learning_rate_factor": 0.3, "warmup_steps": 103}
    leave(search, root / "trial-0002", better, perplexity=2.9)
    write_best(search, read_trials(search, root), root)
    assert find_experiment(NAME).config.training.warmup_steps == 103


def test_there_is_no_best_before_a_trial_has_finished(tmp_path: Path) -> None:
    search = small_search(tmp_path)
    write_best(search, read_trials(search, tmp_path), tmp_path)
    assert not (tmp_path / "best.json").exists()


def test_names_are_listed_and_those_of_two_searches_refused(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    searched_small(root)
    cli.list_()
    assert f"{NAME} Learning rate and warm-up, the best of 2" in capsys.readouterr().out
    with pytest.raises(InputError, match=f"did you mean '{NAME}'"):
        find_experiment("base_lr-smal-best")
    searched_small(Path("runs") / "again")
    with pytest.raises(InputError, match=r"name one file, runs/again/best\.json or runs/base_lr"):
        find_experiment(NAME)


def test_a_broken_file_does_not_hide_the_others(root: Path) -> None:
    searched_small(root)
    (Path("runs") / "broken").mkdir()
    (Path("runs") / "broken" / "best.json").write_text('{"name": ')
    with pytest.warns(UserWarning, match="broken/best.json cannot be read as JSON"):
        assert list(searched()) == [NAME]


def test_nothing_in_runs_is_executed(root: Path) -> None:
    root.mkdir(parents=True)
    (root / "best.py").write_text("from pathlib import Path; Path('executed').touch()")
    cli.list_()
    with pytest.raises(InputError, match="unknown experiment"):
        find_experiment(NAME)
    assert not Path("executed").exists()
