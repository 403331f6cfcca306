"""Views of a search for report and dashboard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ablations.figures.parallel import draw_parallel
from ablations.figures.search import draw_history, draw_importances, draw_slices, scaled
from ablations.search.search import Search
from ablations.search.trials import Trial, missing_for_importances
from ablations.tables.changes import COLUMNS, Value
from experiments.figures.style import Record, Spec

_NAMES = {
    **COLUMNS,
    "learning_rate_factor": "learning-rate factor",
    "warmup_steps": "warm-up",
    "adam_beta1": "β1",
    "adam_beta2": "β2",
    "clip_norm": "clip norm",
}


def label(name: str) -> str:
    """What a parameter is called in a report."""
    return _NAMES.get(name, name.replace("_", " "))


def in_words(declared: Value, trained: Value) -> str:
    """A value in the units of the space, and in parentheses as it was trained if that differs."""
    both = (declared,) if declared == trained or isinstance(trained, str) else (declared, trained)
    shown, *rest = (f"{value:.4g}" if isinstance(value, float) else str(value) for value in both)
    return f"{shown} ({rest[0]})" if rest else shown


def shares_of_importance(search: Search, trials: Sequence[Trial]) -> dict[str, float]:
    """How much each parameter matters as a share of 1, by its label; empty for too few trials."""
    if missing_for_importances(trials):
        return {}
    from ablations.search.sampler import importances  # imports Optuna, which takes a while

    return {label(name): share for name, share in importances(search, trials).items()}


def draw_search(
    search: Search, trials: Sequence[Trial], shares: Mapping[str, float]
) -> dict[str, Spec]:
    """The figures by name for which there are enough trials."""
    records: list[Record] = [
        {
            "number": number,
            "trial": trial.name,
            "state": trial.state,
            "step": trial.step,
            "perplexity": trial.perplexity,
            **{name: _plain(value) for name, value in trial.declared.items()},
            **{scaled(name): _plain(value) for name, value in trial.values.items()},
        }
        for number, trial in enumerate(trials)
    ]
    axes: list[Record] = [
        {
            "name": each.name,
            "log": each.log,
            "choices": [_plain(choice) for choice in each.choices],
            "bounds": each.bounds,
        }
        for each in search.declared
    ]
    drawn = {
        "history": draw_history(records),
        "parallel": draw_parallel(records, axes),
        "importances": draw_importances(shares),
        "slices": draw_slices(records, axes),
    }
    return {name: spec for name, spec in drawn.items() if spec is not None}


def _plain(value: Value) -> int | float | str:
    """A value as an axis of choices takes it."""
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else str(value)
