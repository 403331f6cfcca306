"""Write the report of a search."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from ablations.figures.search import (
    draw_history,
    draw_importances,
    draw_slices,
    draw_trial_curves,
    trained,
)
from ablations.folder import SearchFolder
from ablations.report.facts import facts_of_base, facts_of_results
from ablations.report.grid import Column, Grid
from ablations.report.layout import TEMPLATES, Figure, write_files
from ablations.report.numbers import compute_numbers
from ablations.report.results import label, results_grid, setting
from ablations.report.seeds import verdicts
from ablations.search.search import Search
from ablations.search.trials import Trial, best, ranked, write_best
from ablations.tables.changes import Value
from ablations.tables.warn import warnings_of_runs
from experiments.figures.style import Record, Spec
from experiments.records.progress import RunState
from experiments.records.result import MEASURES
from transformer import formats
from transformer.config import Config
from transformer.errors import InputError
from transformer.evaluation.counts import count_parameters

# PED-ANOVA compares the best quarter with all. Of five parameters, that with ten times the effect
# of the others comes first in over 90 % of searches of 30 trials, in half of those of 10.
LEAST_ENDED, LEAST_FINISHED = 30, 5
_MOST_CURVES = 100
_CAPTIONS = {
    "history": "Perplexity on the validation set by trial; the line is the best so far. Marks at "
    "the upper edge are trials that did not finish, or are ten times worse than the best.",
    "curves": "Perplexity on the validation set during training, a line for each trial (of the "
    f"{_MOST_CURVES} best), the best in blue.",
    "importances": "Shares of the parameters in what makes a trial one of the best quarter.",
    "slices": "Perplexity on the validation set against each parameter by itself.",
}
_STATES = [RunState(x) for x in ("done", "pruned", "diverged", "failed", "running", "waiting")]


def write_search_report(folder: SearchFolder) -> str:
    """Write the report of a search and ``best.json``; the report for the terminal."""
    search, trials = folder.plan, folder.trials()
    write_best(search, trials, folder.path)
    shares = shares_of_importance(search, trials)
    specs = draw_search(search, trials, shares)
    figures = [Figure(name=x, spec=specs[x], caption=_CAPTIONS[x]) for x in _CAPTIONS if x in specs]
    values = _values(folder, trials, shares)
    return write_files(folder.path, TEMPLATES / "search.j2", values, figures)


def describe_trial(search: Search, trial: Trial | None) -> str:
    """A trial in one line; empty for None."""
    if trial is None:
        return ""
    values = ", ".join(f"{name} {words}" for name, words in _in_words(search, trial.values).items())
    return f"{trial.name}, perplexity {formats.number(trial.perplexity, 3)}: {values}"


def _in_words(search: Search, values: Mapping[str, Value]) -> dict[str, str]:
    """Values in the units of the space, with the trained ones in parentheses if they differ."""
    found: dict[str, str] = {}
    for name, value in search.declare(values).items():
        ours, theirs = setting(name, value), setting(name, values[name])
        found[name] = ours if ours == theirs else f"{ours} ({theirs})"
    return found


def shares_of_importance(search: Search, trials: Sequence[Trial]) -> dict[str, float]:
    """The importance of each parameter by its label, as a share of 1; empty for too few trials, or
    trials that are too much alike.
    """
    if not _are_enough(trials):
        return {}
    from ablations.runs.search_cells import importances  # imports Optuna, which takes a while

    return {label(name): share for name, share in importances(search, trials).items()}


def _are_enough(trials: Sequence[Trial]) -> bool:
    ended = ranked(trials)
    finished = sum(trial.state == RunState.DONE for trial in ended)
    return len(ended) >= LEAST_ENDED and finished >= LEAST_FINISHED


def draw_search(
    search: Search, trials: Sequence[Trial], shares: Mapping[str, float]
) -> dict[str, Spec]:
    """The figures, by name, that have enough trials."""
    records: list[Record] = [
        {
            "number": number,
            "trial": trial.name,
            "state": trial.state,
            "step": trial.step,
            "perplexity": trial.perplexity,
            **{x: _on_axis(x, value) for x, value in search.declare(trial.values).items()},
            **{trained(x): words for x, words in _in_words(search, trial.values).items()},
        }
        for number, trial in enumerate(trials)
    ]
    axes: list[Record] = [
        {
            "name": each.name,
            "log": each.log,
            "choices": [_on_axis(each.name, choice) for choice in declared.choices],
            "bounds": [each.declare(bound, declared) for bound in each.bounds],
        }
        for each, declared in zip(search.parameters, search.declared, strict=True)
    ]
    drawn = {
        "history": draw_history(records),
        "curves": draw_trial_curves(
            {trial.name: trial.curve for trial in ranked(trials)[:_MOST_CURVES]},
            found.name if (found := best(trials)) else None,
        ),
        "importances": draw_importances(shares),
        "slices": draw_slices(records, axes),
    }
    return {name: spec for name, spec in drawn.items() if spec is not None}


def _on_axis(name: str, value: Value) -> int | float | str:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return setting(name, value)
    return value


def _values(
    folder: SearchFolder, trials: Sequence[Trial], shares: Mapping[str, float]
) -> dict[str, object]:
    """The values of the templates."""
    search, found = folder.plan, best(trials)
    corpus = search.base.data.corpus
    counts = Counter(trial.state for trial in trials)
    states = ", ".join(f"{counts[state]} {state}" for state in _STATES if counts[state])
    matters = (
        f"Importances need {LEAST_ENDED} trials that ended, {LEAST_FINISHED} of them finished."
    )
    if shares:
        said = ", ".join(f"{name} {share:.0%}" for name, share in shares.items())
        matters = f"What decides whether a trial is among the best quarter: {said}."
    elif _are_enough(trials):
        matters = "The perplexities are too much alike to say which parameters matter."
    devices = [trial.result.device for trial in trials if trial.result]
    verdict = "No trial has finished yet."
    if found is not None:
        verdict = (
            f"The best is {found.name}, perplexity {formats.number(found.perplexity, 3)} on the "
            "validation set. Train it with python -m experiments train DIRECTORY/best.json or, if "
            f"the search is in runs/, by name: train {search.name}-best."
        )
    confirmed = folder.confirmation and compute_numbers(folder.confirmation)
    return {
        "title": f"Search: {search.title}",
        "headline": f"Search {search.space} at scale {search.scale} on {corpus.name} "
        f"({corpus.source_language} → {corpus.target_language}), "
        f"{search.trials} trial{'s' * (search.trials > 1)}: {states}.",
        "verdict": verdict,
        "best_and_base": _best_and_base(search, found, trials),
        "confirmed": results_grid(confirmed, folder.path) if confirmed else Grid([]),
        "confirmed_verdicts": list(verdicts(confirmed)) if confirmed else [],
        "progress": " ".join([search.describe_rungs(), *_saved(search, trials)]),
        "matters": matters,
        "trials": _trials(search, trials, found),
        "warnings": list(warnings_of_runs({"the base": search.base}, devices)),
        "problems": [f"{trial.name}: {trial.reason}" for trial in trials if trial.reason],
        "facts": list(_facts(search, trials)),
        "search": search,  # for the notes
    }


def _saved(search: Search, trials: Sequence[Trial]) -> Iterator[str]:
    """What pruning has saved so far."""
    ended = [trial for trial in trials if trial.state in (RunState.DONE, RunState.PRUNED)]
    trained = sum(trial.step for trial in ended)
    whole = len(ended) * search.base.training.max_steps
    count = f"{len(ended)} trial{'s' * (len(ended) > 1)}"
    if trained < whole:
        yield (
            f"The {count} that ended took {trained:,} steps in place of {whole:,}: "
            f"pruning saved {1 - trained / whole:.0%}."
        )


def _best_and_base(search: Search, found: Trial | None, trials: Sequence[Trial]) -> Grid:
    """The best trial next to the base, with the base's scores if a trial has its values."""
    if found is None:
        return Grid([])
    base = search.values(search.base)
    of_base = next((x for x in trials if x.state == RunState.DONE and x.values == base), None)
    pairs = [_scores(search, of_base), _scores(search, found)]
    for one, values in zip(pairs, (base, found.values), strict=True):
        one |= {label(name): words for name, words in _in_words(search, values).items()}
        one["params"] = _millions(search.configure(values))
    ours, theirs = pairs
    return Grid(
        [
            Column("setting", list(ours)),
            Column("base", list(ours.values()), style="theirs"),
            Column("best", list(theirs.values()), style="ours"),
        ]
    )


def _scores(search: Search, trial: Trial | None) -> dict[str, str]:
    """A trial's scores by the heads of their columns; a pruned one has a perplexity alone."""
    perplexity, score = (MEASURES[name] for name in search.measures)
    found = trial and trial.result and getattr(trial.result, score.name)
    return {
        perplexity.short: formats.number(trial and trial.perplexity, perplexity.digits),
        score.short: formats.number(found, score.digits),
    }


def _trials(search: Search, trials: Sequence[Trial], found: Trial | None) -> Grid:
    begun = [trial for trial in trials if trial.values]
    scores = [_scores(search, trial) for trial in begun]
    states = ["best" if trial is found else str(trial.state) for trial in begun]
    perplexity, score = (MEASURES[name].short for name in search.measures)
    columns = [
        Column("trial", [trial.name.removeprefix("trial-") for trial in begun]),
        Column("state", states, style="state"),
        Column("step", [f"{trial.step:,}" for trial in begun]),
        Column(perplexity, [each[perplexity] for each in scores], style="found"),
        Column(score, [each[score] for each in scores]),
        Column("params", [_millions(search.configure(trial.values)) for trial in begun]),
    ]
    words = [_in_words(search, trial.values) for trial in begun]
    for name in (parameter.name for parameter in search.parameters):
        columns.append(Column(label(name), [each[name] for each in words]))
    styles = {"best": "best", RunState.FAILED: "failed", RunState.DIVERGED: "failed"}
    return Grid(columns, row_styles=[styles.get(state, "") for state in states], name="trials")


def _facts(search: Search, trials: Sequence[Trial]) -> Iterator[tuple[str, str]]:
    yield "base", f"{search.scale}'s, with seed {search.base.training.seed} in all trials"
    yield "sampler, pruner", f"{search.sampler}, {search.pruner}"
    yield from facts_of_base(search.base)
    yield from facts_of_results([trial.result for trial in trials if trial.result])


def _millions(config: Config) -> str:
    try:
        return formats.millions(count_parameters(config.model))
    except InputError:  # a variant whose file is not here
        return formats.MISSING
