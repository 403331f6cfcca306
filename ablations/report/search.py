"""Write the report of a search."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from ablations.folder import SearchFolder
from ablations.report.facts import facts_of_base, facts_of_results, label
from ablations.report.grid import Column, Grid, filled
from ablations.report.layout import TEMPLATES, Figure, write_files
from ablations.report.numbers import compute_numbers
from ablations.report.results import results_grid
from ablations.report.search_figures import MOST_CURVES, draw_search, in_words
from ablations.report.seeds import verdicts
from ablations.search.search import Search
from ablations.search.trials import SearchTrial, best, ranked, write_best
from ablations.tables.changes import Value
from ablations.tables.warn import warnings_of_runs
from experiments.records.progress import RunState
from experiments.records.result import MEASURES
from experiments.records.source import source_warnings
from transformer import formats
from transformer.config import Config
from transformer.errors import InputError
from transformer.evaluation.counts import count_parameters

# PED-ANOVA compares the best quarter with all trials. Of five hyperparameters, one with ten times
# the others' effect comes first in over 90 % of searches of 30 trials, in half of those of 10.
LEAST_ENDED, LEAST_FINISHED = 30, 5
_CHRF = MEASURES["chrf"]
_CAPTIONS = {
    "history": "Perplexity on the validation set by trial; the line is the best so far. Marks at "
    "the upper edge are trials that did not finish, or with over ten times the best perplexity.",
    "curves": "Perplexity on the validation set during training, a line for each trial (at most "
    f"the {MOST_CURVES} best), the best in blue.",
    "importances": "How much each hyperparameter decides whether a trial is in the best quarter.",
    "slices": "Perplexity on the validation set against each hyperparameter on its own.",
}
_STATES = (
    *(RunState.DONE, RunState.PRUNED, RunState.DIVERGED),
    *(RunState.FAILED, RunState.RUNNING, RunState.WAITING),
)


def write_search_report(folder: SearchFolder) -> str:
    """Write the report of a search and ``best.json``; return the report for the terminal."""
    search, trials = folder.plan, folder.trials()
    write_best(search, trials, folder.path)
    shares = shares_of_importance(search, trials)
    specs = draw_search(search, trials, shares)
    figures = [
        Figure(name=name, spec=spec, caption=_CAPTIONS[name]) for name, spec in specs.items()
    ]
    values = _values(folder, trials, shares)
    return write_files(folder.path, TEMPLATES / "search.j2", values, figures)


def describe_trial(search: Search, trial: SearchTrial | None) -> str:
    """A trial in one line; empty for None."""
    if trial is None:
        return ""
    values = ", ".join(f"{name} {words}" for name, words in in_words(search, trial.values).items())
    return f"{trial.name}, perplexity {formats.number(trial.perplexity, 3)}: {values}"


def shares_of_importance(search: Search, trials: Sequence[SearchTrial]) -> dict[str, float]:
    """The importance of each hyperparameter by its label, in shares that add up to 1; empty if
    there are too few trials, or if their perplexities are too similar.
    """
    if not _are_enough(trials):
        return {}
    from ablations.runs.search_runs import importances  # imports Optuna, which takes a while

    return {label(name): share for name, share in importances(search, trials).items()}


def _are_enough(trials: Sequence[SearchTrial]) -> bool:
    ended = ranked(trials)
    finished = sum(trial.state == RunState.DONE for trial in ended)
    return len(ended) >= LEAST_ENDED and finished >= LEAST_FINISHED


def _values(
    folder: SearchFolder, trials: Sequence[SearchTrial], shares: Mapping[str, float]
) -> dict[str, object]:
    """The values of the templates."""
    search, best_trial = folder.plan, best(trials)
    corpus = search.base.data.corpus
    counts = Counter(trial.state for trial in trials)
    states = ", ".join(f"{counts[state]} {state}" for state in _STATES if counts[state])
    devices = [trial.result.device for trial in trials if trial.result]
    verdict = "No trial has finished yet."
    if best_trial is not None:
        perplexity = formats.number(best_trial.perplexity, 3)
        verdict = (
            f"The best is {best_trial.name}, perplexity {perplexity} on the validation set. Train "
            "it with python -m experiments train DIRECTORY/best.json or, if the search is in "
            f"runs/, by name with python -m experiments train {search.name}-best."
        )
    confirmed, confirmed_verdicts = Grid([]), []
    if folder.confirmation is not None:
        numbers = compute_numbers(folder.confirmation)
        confirmed = results_grid(numbers, folder.path)
        confirmed_verdicts = list(verdicts(numbers))
    return {
        "title": f"Search: {search.title}",
        "headline": f"Search {search.space} at scale {search.scale} on {corpus.name} "
        f"({corpus.source_language} → {corpus.target_language}), "
        f"{formats.counted(search.trials, 'trial')}: {states}.",
        "verdict": verdict,
        "best_and_base": _best_and_base(search, best_trial, trials),
        "confirmed": confirmed,
        "confirmed_verdicts": confirmed_verdicts,
        "progress": f"{search.describe_rungs()}{_saved(search, trials)}",
        "matters": _what_matters(trials, shares),
        "trials": _trials(search, trials, best_trial),
        "warnings": [
            *warnings_of_runs({"the base": search.base}, devices),
            *source_warnings(folder.look()),
        ],
        "problems": [f"{trial.name}: {trial.reason}" for trial in trials if trial.reason],
        "facts": list(_facts(search, trials)),
        "search": search,  # for the notes
    }


def _saved(search: Search, trials: Sequence[SearchTrial]) -> str:
    """A sentence on the steps that pruning has saved, after a space; empty if it saved none."""
    ended = [trial for trial in trials if trial.state in (RunState.DONE, RunState.PRUNED)]
    taken = sum(trial.step for trial in ended)
    whole = len(ended) * search.base.training.max_steps
    if taken >= whole:
        return ""
    count = formats.counted(len(ended), "trial")
    return (
        f" The {count} that ended took {taken:,} steps instead of {whole:,}: "
        f"pruning saved {1 - taken / whole:.0%}."
    )


def _what_matters(trials: Sequence[SearchTrial], shares: Mapping[str, float]) -> str:
    if shares:
        said = ", ".join(f"{name} {share:.0%}" for name, share in shares.items())
        return f"Importance for being among the best quarter of trials: {said}."
    if _are_enough(trials):
        return "The perplexities are too similar to say which hyperparameters matter."
    return f"Importances need {LEAST_ENDED} ended trials, {LEAST_FINISHED} of them finished."


def _best_and_base(
    search: Search, best_trial: SearchTrial | None, trials: Sequence[SearchTrial]
) -> Grid:
    """The best trial next to the base; the base has scores if a trial has its values."""
    if best_trial is None:
        return Grid([])
    base = search.values(search.base)
    finished = [trial for trial in trials if trial.state == RunState.DONE]
    of_base = next((trial for trial in finished if trial.values == base), None)
    ours = _scores(search, best_trial) | _settings(search, best_trial.values)
    theirs = _scores(search, of_base) | _settings(search, base)
    names = list(dict.fromkeys((*ours, *theirs)))  # only one of them may have an option
    return Grid(
        [
            Column("setting", names),
            Column("base", [theirs.get(name, "") for name in names], style="theirs"),
            Column("best", [ours.get(name, "") for name in names], style="ours"),
        ]
    )


def _settings(search: Search, values: Mapping[str, Value]) -> dict[str, str]:
    words = {label(name): text for name, text in in_words(search, values).items()}
    return {**words, "params": _millions(search.configure(values))}


def _scores(search: Search, trial: SearchTrial | None) -> dict[str, str]:
    """A trial's scores by the heads of their columns; a pruned trial has only a perplexity."""
    perplexity, score = (MEASURES[name] for name in search.measures)
    result = trial.result if trial else None
    found = {
        perplexity.short: formats.number(trial.perplexity if trial else None, perplexity.digits),
        score.short: formats.number(getattr(result, score.name, None), score.digits),
    }
    if result is not None and result.chrf is not None:
        found[_CHRF.short] = formats.number(result.chrf, _CHRF.digits)
    return found


def _trials(search: Search, trials: Sequence[SearchTrial], best_trial: SearchTrial | None) -> Grid:
    begun = [trial for trial in trials if trial.values]
    scores = [_scores(search, trial) for trial in begun]
    states = ["best" if trial is best_trial else str(trial.state) for trial in begun]
    perplexity, score = (MEASURES[name].short for name in search.measures)
    columns = [
        Column("trial", [trial.name.removeprefix("trial-") for trial in begun]),
        Column("state", states, style="state"),
        Column("step", [f"{trial.step:,}" for trial in begun]),
        Column(perplexity, [of_trial[perplexity] for of_trial in scores], style="found"),
        Column(score, [of_trial[score] for of_trial in scores]),
        *filled([Column(_CHRF.short, [of_trial.get(_CHRF.short, "") for of_trial in scores])]),
        Column("params", [_millions(search.configure(trial.values)) for trial in begun]),
    ]
    words = [in_words(search, trial.values) for trial in begun]
    for parameter in search.parameters:
        cells = [of_trial.get(parameter.name, "") for of_trial in words]
        columns.append(Column(label(parameter.name), cells))
    styles = {"best": "best", RunState.FAILED: "failed", RunState.DIVERGED: "failed"}
    return Grid(columns, row_styles=[styles.get(state, "") for state in states], name="trials")


def _facts(search: Search, trials: Sequence[SearchTrial]) -> Iterator[tuple[str, str]]:
    yield "base", f"{search.scale}'s, with seed {search.base.training.seed} in all trials"
    yield "sampler, pruner", f"{search.sampler}, {search.pruner}"
    yield from facts_of_base(search.base)
    yield from facts_of_results([trial.result for trial in trials if trial.result])


def _millions(config: Config) -> str:
    try:
        return formats.millions(count_parameters(config.model))
    except InputError:  # a variant whose file is not here
        return formats.MISSING
