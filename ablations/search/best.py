"""The best configuration of a search, as an experiment that one can train by name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ablations.search.search import Search
from ablations.search.trials import Trial, best
from experiments.run.experiment import BEST_FILE, Experiment
from experiments.run.files import write_json
from transformer import formats
from transformer.config import to_dict


def write_best(search: Search, trials: Sequence[Trial], root: Path) -> None:
    """Write ``best.json`` into the search's directory as soon as a trial has finished."""
    found = best(trials)
    if found is None:
        return
    ended = sum(trial.has_ended for trial in trials)
    experiment = Experiment(
        name=f"{search.name}-best",
        description=(
            f"{search.title}, the best of {ended} trials at scale {search.scale}: {found.name}, "
            f"perplexity {formats.number(found.perplexity, 3)}"
        ),
        config=search.configure(found.values),
        tags=("search", search.space, search.scale),
    )
    write_json(root / BEST_FILE, to_dict(experiment))
