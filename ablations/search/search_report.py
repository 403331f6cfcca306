"""Write the report of a search."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ablations.figures.curves import read_curve
from ablations.figures.search import draw_trial_curves
from ablations.files import CONFIRM, PLAN_FILE
from ablations.report.grids import results_grid
from ablations.report.layout import Column, Figure, Grid
from ablations.report.numbers import compute_numbers
from ablations.report.sentences import facts_of_base, facts_of_results, verdicts
from ablations.report.write import write_files
from ablations.runs.attempts import locate
from ablations.search.rungs import count_passed, describe_rungs
from ablations.search.search import Search, load_search
from ablations.search.shown import draw_search, in_words, label, shares_of_importance
from ablations.search.trials import Trial, best, missing_for_importances, read_trials
from experiments.records.progress import RunState
from experiments.records.result import MEASURES
from transformer import formats
from transformer.config import Config
from transformer.errors import InputError
from transformer.evaluation.counts import count_parameters

TEMPLATE = Path(__file__).parent / "templates" / "search.j2"
_MAX_CURVES = 100
_CAPTIONS = {
    "history": "Perplexity on the validation set by trial; the line is the best so far. Marks at "
    "the upper edge are trials that did not finish, or are ten times worse than the best.",
    "curves": "Perplexity on the validation set during training, a line for each trial (of the "
    f"{_MAX_CURVES} best), the best in blue.",
    "importances": "Shares of the parameters in what makes a trial one of the best quarter.",
    "parallel": "Each finished trial as a line through its values, coloured by its rank; the "
    "values of the others are grey marks. Values are in the units of the space.",
    "slices": "Perplexity on the validation set against each parameter by itself, in the units of "
    "the space.",
}
_STATES = (
    RunState.DONE,
    RunState.PRUNED,
    RunState.DIVERGED,
    RunState.FAILED,
    RunState.RUNNING,
    RunState.WAITING,
)


def write_search_report(directory: Path) -> str:
    """Write the report into a search's directory: HTML, Markdown and figures.

    Returns:
        The report for the terminal.
    """
    search = load_search(directory)
    trials = read_trials(search, directory)
    importances = shares_of_importance(search, trials)
    values = _values(search, trials, importances, directory)
    figures = list(_figures(search, trials, importances, directory))
    return write_files(directory, TEMPLATE, values, figures)


def _values(
    search: Search, trials: Sequence[Trial], importances: Mapping[str, float], directory: Path
) -> dict[str, object]:
    """The values of the templates; ``importances`` are shares of 1, or empty."""
    found, corpus = best(trials), search.base.data.corpus
    counts = Counter(trial.state for trial in trials)
    states = ", ".join(f"{counts[state]} {state}" for state in _STATES if counts[state])
    matters = f"To tell what matters, {missing_for_importances(trials)}."
    if importances:
        said = ", ".join(f"{name} {share:.0%}" for name, share in importances.items())
        matters = f"What decides whether a trial is among the best quarter: {said}."
    again = directory / CONFIRM
    confirmed = compute_numbers(again) if (again / PLAN_FILE).is_file() else None
    return {
        "title": f"Search: {search.title}",
        "headline": f"Search {search.space} at scale {search.scale} on {corpus.name} "
        f"({corpus.source_language} → {corpus.target_language}), {search.trials} trials: {states}.",
        "verdict": _verdict(found),
        "best_and_base": _best_and_base(search, found, trials),
        "confirmed": results_grid(confirmed) if confirmed else Grid([]),
        "confirmed_verdicts": list(verdicts(confirmed)) if confirmed else [],
        "progress": list(_progress(search, trials)),
        "matters": matters,
        "trials": _trials(search, trials, found),
        "problems": [f"{trial.name}: {trial.reason}" for trial in trials if trial.reason],
        "facts": list(_facts(search, trials)),
        "search": search,  # for the notes
    }


def _figures(
    search: Search, trials: Sequence[Trial], shares: Mapping[str, float], directory: Path
) -> Iterator[Figure]:
    """The figures for which there are enough trials."""
    seed, found = search.base.training.seed, best(trials)
    begun = [trial for trial in trials if trial.values]
    begun.sort(key=lambda trial: trial.perplexity or math.inf)
    names = [trial.name for trial in begun[:_MAX_CURVES]]
    curves = [read_curve(locate(directory / name), name, seed) for name in names]
    specs = draw_search(search, trials, shares)
    if (spec := draw_trial_curves(curves, found.name if found else None)) is not None:
        specs["curves"] = spec
    for name, caption in _CAPTIONS.items():
        if name in specs:
            yield Figure(name=name, spec=specs[name], caption=caption)


def _progress(search: Search, trials: Sequence[Trial]) -> Iterator[str]:
    """Sentences on where trials are pruned, and how many went on from there."""
    yield describe_rungs(search)
    early = (RunState.PRUNED, RunState.DIVERGED)
    ends = [(trial.step, trial.state in early) for trial in trials]
    if passed := count_passed(search.rungs, ends):
        yield f"{passed.capitalize()}."
    whole = search.base.training.max_steps * sum(trial.has_ended for trial in trials)
    if trained := sum(trial.step for trial in trials if trial.has_ended):
        yield f"Trained: {trained:,} steps of the {whole:,} that these trials have to their ends."


def _verdict(found: Trial | None) -> str:
    if found is None:
        return "No trial has finished yet."
    return (
        f"The best is {found.name}, perplexity {formats.number(found.perplexity, 3)} on the "
        "validation set. Train it with python -m experiments train DIRECTORY/best.json."
    )


def _best_and_base(search: Search, found: Trial | None, trials: Sequence[Trial]) -> Grid:
    """The best trial next to the base, whose scores are known if a trial is the base itself."""
    base = search.values(search.base)
    rows: list[tuple[str, str, str]] = []
    if found is not None:
        same = (x.result for x in trials if x.state == RunState.DONE and x.values == base)
        of_base = next(same, None)
        for title, name in (("PPL", "perplexity"), ("BLEU", "bleu")):
            scores = (getattr(result, name, None) for result in (of_base, found.result))
            ours, theirs = (formats.number(score, MEASURES[name].digits) for score in scores)
            rows.append((title, ours, theirs))
        rows += [
            (
                label(name),
                in_words(units, base[name]),
                in_words(found.declared[name], found.values[name]),
            )
            for name, units in search.declare(base).items()
        ]
        of_best = search.configure(found.values)
        rows.append(("params", _millions(search.base), _millions(of_best)))
    return Grid(
        [
            Column("setting", [name for name, _, _ in rows]),
            Column("base", [base for _, base, _ in rows], style="theirs"),
            Column("best", [best for _, _, best in rows], style="ours"),
        ]
    )


def _trials(search: Search, trials: Sequence[Trial], found: Trial | None) -> Grid:
    begun = [trial for trial in trials if trial.values]
    bleu = [trial.result.bleu if trial.result else None for trial in begun]
    perplexity, digits = [trial.perplexity for trial in begun], MEASURES["perplexity"].digits
    states = ["best" if trial is found else str(trial.state) for trial in begun]
    columns = [
        Column("trial", [trial.name.removeprefix("trial-") for trial in begun]),
        Column("state", states, style="state"),
        Column("step", [f"{trial.step:,}" for trial in begun]),
        Column("PPL", [formats.number(x, digits) for x in perplexity], style="found"),
        Column("BLEU", [formats.number(x, MEASURES["bleu"].digits) for x in bleu]),
        Column("params", [_millions(search.configure(trial.values)) for trial in begun]),
    ]
    for name in (parameter.name for parameter in search.parameters):
        cells = [in_words(trial.declared[name], trial.values[name]) for trial in begun]
        columns.append(Column(label(name), cells))
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
