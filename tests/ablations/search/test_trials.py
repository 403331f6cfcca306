"""The best trial as an experiment that can be trained."""

from __future__ import annotations

from pathlib import Path

from ablations.search.trials import read_trials, write_best
from experiments.catalog.find import find_experiment
from experiments.records.experiment import load_experiment
from tests.ablations.search.samples import leave, small_search


def test_the_best_is_found_by_its_file_exactly_as_it_was_trained(tmp_path: Path) -> None:
    search, path = small_search(tmp_path, seed=7), tmp_path / "best.json"
    write_best(search, read_trials(search, tmp_path), tmp_path)
    assert not path.exists()
    for number, perplexity in enumerate((3.5, 3.0, 2.9)):
        values = {"learning_rate_factor": 0.1 + 0.2 * (number + 1), "warmup_steps": 101 + number}
        leave(search, tmp_path / search.names[number], values, perplexity=perplexity)
        write_best(search, read_trials(search, tmp_path), tmp_path)
    found = find_experiment(str(path))
    assert found.config == load_experiment(tmp_path / "trial-0002").config
    assert (found.name, found.description) == (
        "base_lr-tiny-best",
        "Learning rate and warm-up, the best of 3 trials at scale tiny: trial-0002, "
        "perplexity 2.900",
    )
