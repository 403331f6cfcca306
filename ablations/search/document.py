"""The words and figures of a search's report as text, before they become a page or a file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ablations import formats
from ablations.report.document import SETTINGS
from ablations.report.evidence import BLEU_DIGITS, PERPLEXITY_DIGITS
from ablations.report.remarks import facts_of_base, facts_of_results
from ablations.search.parameter import Value
from ablations.search.plot import Bars, History, bars, history
from ablations.search.search import Search
from ablations.search.trials import Trial, best
from experiments.run.progress import RunState
from transformer.config import Config
from transformer.evaluation.sizes import trained_numbers

# Fewer trials than this order parameters by chance.
ENOUGH = 10
_NAMES = {
    **SETTINGS,
    "learning_rate_factor": "learning-rate factor",
    "warmup_steps": "warm-up",
    "adam_beta1": "β1",
    "adam_beta2": "β2",
    "clip_norm": "clip norm",
}
_STATES = (
    RunState.DONE,
    RunState.PRUNED,
    RunState.DIVERGED,
    RunState.FAILED,
    RunState.RUNNING,
    RunState.WAITING,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Document:
    """A report. ``best`` has a line for each setting: the base's and the best's value;
    ``lines`` one for each trial that was begun, under ``names``; ``shares`` are the importances.
    """

    title: str
    headline: str
    verdict: str
    best: tuple[tuple[str, str, str], ...]
    names: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]
    history: History | None
    shares: Bars | None
    importances: str
    problems: tuple[str, ...]
    notes: tuple[str, ...]
    facts: tuple[tuple[str, str], ...]


def compose(search: Search, trials: Sequence[Trial], shares: Mapping[str, float]) -> Document:
    """The report of a search, with ``shares`` of 1 by which parameters matter, if there are any."""
    found = best(trials)
    corpus = search.base.data.corpus
    counts = Counter(trial.state for trial in trials)
    states = ", ".join(f"{counts[state]} {state}" for state in _STATES if counts[state])
    labels = {name: _label(name) for name in shares}
    return Document(
        title=f"Search: {search.title}",
        headline=(
            f"Search {search.space} at scale {search.scale} on {corpus.name} "
            f"({corpus.source_language} → {corpus.target_language}), "
            f"{search.trials} trials: {states}."
        ),
        verdict=_verdict(search, found),
        best=_best(search, found, trials) if found else (),
        names=(
            *("trial", "state", "step", "PPL", "BLEU", "params"),
            *(_label(each.name) for each in search.parameters),
        ),
        lines=tuple(_line(search, trial, found) for trial in trials if trial.values),
        history=history(trials),
        shares=bars({labels[name]: share for name, share in shares.items()}) if shares else None,
        importances=_importances(shares, labels),
        problems=tuple(f"{trial.name}: {trial.reason}" for trial in trials if trial.reason),
        notes=tuple(_notes(search)),
        facts=(
            ("base", f"{search.scale}'s, with seed {search.base.training.seed} in all trials"),
            *facts_of_base(search.base),
            *facts_of_results([trial.result for trial in trials if trial.result]),
        ),
    )


def _verdict(search: Search, found: Trial | None) -> str:
    if found is None:
        return "No trial has finished yet."
    return (
        f"The best is {found.name}, perplexity {formats.number(found.perplexity, 3)} on the "
        "validation set. python -m experiments train DIRECTORY/best.json trains it, and below "
        f"runs/ its name does, too: train {search.name}-best."
    )


def _best(
    search: Search, found: Trial, trials: Sequence[Trial]
) -> tuple[tuple[str, str, str], ...]:
    """Base and best, with the base's scores where a trial is the base itself."""
    base = search.values(search.base)
    same = [trial for trial in trials if trial.state == RunState.DONE and trial.values == base]
    settings = (
        (_label(each.name), _value(base[each.name]), _value(found.values[each.name]))
        for each in search.parameters
    )
    return (
        ("PPL", *_both(same[0] if same else None, found, "perplexity", PERPLEXITY_DIGITS)),
        ("BLEU", *_both(same[0] if same else None, found, "bleu", BLEU_DIGITS)),
        *settings,
        ("params", _millions(search.base), _millions(search.configure(found.values))),
    )


def _both(base: Trial | None, found: Trial, name: str, digits: int) -> tuple[str, str]:
    first, second = (
        formats.number(getattr(trial.result, name) if trial else None, digits)
        for trial in (base, found)
    )
    return first, second


def _line(search: Search, trial: Trial, found: Trial | None) -> tuple[str, ...]:
    return (
        trial.name.removeprefix("trial-"),
        "best" if found and trial.name == found.name else trial.state,
        formats.count(trial.step),
        formats.number(trial.perplexity, PERPLEXITY_DIGITS),
        formats.number(trial.result.bleu if trial.result else None, BLEU_DIGITS),
        _millions(search.configure(trial.values)),
        *(_value(trial.values[each.name]) for each in search.parameters),
    )


def _importances(shares: Mapping[str, float], labels: Mapping[str, str]) -> str:
    if not shares:
        return f"Fewer than {ENOUGH} trials have ended, too few to tell which parameters matter."
    said = ", ".join(f"{labels[name]} {share:.0%}" for name, share in shares.items())
    return f"What decides whether a trial is among the best tenth: {said}."


def _notes(search: Search) -> Iterator[str]:
    yield (
        "Perplexity is of the validation set, per word-piece; lower is better. That of a pruned "
        "trial is what it had when it was ended at its step: its learning rate had still to fall, "
        "so it is not to be compared with that of a finished one."
    )
    yield (
        "The best of many trials by one seed owes a part of its lead to chance: train it and the "
        "base with other seeds before believing in it."
    )
    yield (
        "Importances are by PED-ANOVA, shares of 1; pruned trials count as worse than finished "
        "ones. They are of the bounds of this space, and do not say which value is best."
    )
    if any(each.name == "label_smoothing" for each in search.parameters):
        yield (
            "Label smoothing raises perplexity and yet can raise BLEU (section 5.4, rows (D) of "
            "Table 3): compare the BLEU of the best trials too."
        )
    if search.max_parameters is not None:
        yield (
            f"No model has more than {search.max_parameters:,} parameters; larger ones were not "
            "drawn."
        )
    for each in search.parameters:
        if each.sets:
            yield f"{', '.join(each.sets)} is as {each.name}."


def _label(name: str) -> str:
    return _NAMES.get(name, name)


def _value(value: Value) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _millions(config: Config) -> str:
    return formats.millions(trained_numbers(config.model))
