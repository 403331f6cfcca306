"""The report of a search: its best trial, what matters, and all trials."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from ablations.figures.curves import read_curve
from ablations.figures.search import draw_trial_curves
from ablations.files import CONFIRM, PLAN_FILE
from ablations.report.notes import facts_of_base, facts_of_results
from ablations.report.page import Column, Facts, Figure, Figures, Page, Part, Table, Text, make_page
from ablations.report.results import results_table
from ablations.report.summary import summarise
from ablations.report.verdicts import verdicts
from ablations.report.write import write_page
from ablations.runs.attempts import locate
from ablations.search.rungs import count_passed, describe_rungs
from ablations.search.search import Search, load_search
from ablations.search.shown import draw_search, in_words, label, shares_of_importance
from ablations.search.trials import Trial, best, missing_for_importances, read_trials
from experiments.run.measures import MEASURES
from experiments.run.progress import RunState
from transformer import formats
from transformer.config import Config
from transformer.errors import InputError
from transformer.evaluation.counts import count_parameters

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


def write_search_report(directory: Path) -> Page:
    """Write the report into a search's directory: HTML, Markdown and figures.

    Raises:
        InputError: if the directory is not a search's, or a file in it cannot be read.
    """
    search = load_search(directory)
    trials = read_trials(search, directory)
    page = compose_search(search, trials, shares_of_importance(search, trials), directory)
    write_page(page, directory)
    return page


def compose_search(
    search: Search, trials: Sequence[Trial], importances: Mapping[str, float], directory: Path
) -> Page:
    """The report of a search; ``importances`` are shares of 1, or empty."""
    found = best(trials)
    corpus = search.base.data.corpus
    counts = Counter(trial.state for trial in trials)
    states = ", ".join(f"{counts[state]} {state}" for state in _STATES if counts[state])
    headline = (
        f"Search {search.space} at scale {search.scale} on {corpus.name} "
        f"({corpus.source_language} → {corpus.target_language}), {search.trials} trials: {states}."
    )
    matters = f"To tell what matters, {missing_for_importances(trials)}."
    if importances:
        said = ", ".join(f"{name} {share:.0%}" for name, share in importances.items())
        matters = f"What decides whether a trial is among the best quarter: {said}."
    drawn = _figures(search, trials, importances, directory)
    problems = tuple(f"{trial.name}: {trial.reason}" for trial in trials if trial.reason)
    return make_page(
        f"Search: {search.title}",
        (
            "",
            [
                Text((headline,), style="headline", terminal=True),
                Text((_verdict(search, found),), terminal=True),
                _best_and_base(search, found, trials),
            ],
        ),
        ("Trained again with other seeds", list(_confirmed(directory / CONFIRM))),
        ("Progress", [Text(tuple(_pruning(search, trials))), drawn("history", "curves")]),
        (
            "Which parameters matter",
            [Text((matters,), terminal=True), drawn("importances", "parallel", "slices")],
        ),
        ("Trials", [_trials(search, trials, found)]),
        (
            "Without a result",
            [Text(problems, style="problems", is_list=True, terminal=True)],
        ),
        ("How to read it", [Text(tuple(_notes(search)), is_list=True)]),
        ("Set-up", [Facts(tuple(_facts(search, trials)))]),
    )


def _confirmed(directory: Path) -> Iterator[Part]:
    """The best trials against the base with seeds that the search never saw."""
    if (directory / PLAN_FILE).is_file():
        summary = summarise(directory)
        yield results_table(summary)
        yield Text(tuple(verdicts(summary)), is_list=True, terminal=True)


def _figures(
    search: Search, trials: Sequence[Trial], shares: Mapping[str, float], directory: Path
) -> Callable[..., Figures]:
    """A function from names to those of the figures for which there are enough trials."""
    seed, found = search.base.training.seed, best(trials)
    begun = [
        trial.name
        for trial in sorted(trials, key=lambda x: x.perplexity or math.inf)
        if trial.values
    ]
    curves = [read_curve(locate(directory / name), name, seed) for name in begun[:_MAX_CURVES]]
    specs = draw_search(search, trials, shares)
    if (spec := draw_trial_curves(curves, found.name if found else None)) is not None:
        specs["curves"] = spec
    drawn = {
        name: Figure(name=name, spec=spec, caption=_CAPTIONS[name]) for name, spec in specs.items()
    }
    return lambda *names: Figures(tuple(drawn[name] for name in names if name in drawn))


def _pruning(search: Search, trials: Sequence[Trial]) -> Iterator[str]:
    """Where trials are pruned, and how many went on from there."""
    yield describe_rungs(search.pruner, search.base, search.parameters)
    early = (RunState.PRUNED, RunState.DIVERGED)
    ends = [(trial.step, trial.state in early) for trial in trials]
    if passed := count_passed(search.rungs, ends):
        yield f"{passed.capitalize()}."
    whole = search.base.training.max_steps * sum(trial.has_ended for trial in trials)
    if trained := sum(trial.step for trial in trials if trial.has_ended):
        yield f"Trained: {trained:,} steps of the {whole:,} that these trials have to their ends."


def _verdict(search: Search, found: Trial | None) -> str:
    if found is None:
        return "No trial has finished yet."
    return (
        f"The best is {found.name}, perplexity {formats.number(found.perplexity, 3)} on the "
        "validation set. Train it with python -m experiments train DIRECTORY/best.json or, if the "
        f"search is in runs/, by name: train {search.name}-best."
    )


def _best_and_base(search: Search, found: Trial | None, trials: Sequence[Trial]) -> Table:
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
    columns = (Column("setting"), Column("base", style="theirs"), Column("best", style="ours"))
    return Table(columns=columns, rows=tuple(rows), terminal=True)


def _trials(search: Search, trials: Sequence[Trial], found: Trial | None) -> Table:
    columns = [Column("trial"), Column("state", style="state"), Column("step")]
    columns += [Column("PPL", style="found"), Column("BLEU"), Column("params")]
    columns += [Column(label(each.name)) for each in search.parameters]
    rows: list[tuple[str, ...]] = []
    styles: list[str] = []
    for trial in trials:
        if trial.values:
            is_best = found is not None and trial.name == found.name
            failed = trial.state in (RunState.FAILED, RunState.DIVERGED)
            styles.append("best" if is_best else "failed" if failed else "")
            rows.append(
                (
                    trial.name.removeprefix("trial-"),
                    "best" if is_best else trial.state,
                    f"{trial.step:,}",
                    formats.number(trial.perplexity, MEASURES["perplexity"].digits),
                    formats.number(
                        trial.result.bleu if trial.result else None, MEASURES["bleu"].digits
                    ),
                    _millions(search.configure(trial.values)),
                    *(
                        in_words(trial.declared[x.name], trial.values[x.name])
                        for x in search.parameters
                    ),
                )
            )
    return Table(columns=tuple(columns), rows=tuple(rows), row_styles=tuple(styles), name="trials")


def _notes(search: Search) -> Iterator[str]:
    if search.axes != search.parameters:
        yield (
            "Values of the parameters are in the units of the space, which are the paper's; in "
            "parentheses are those that the scale made of them."
        )
    yield (
        "Perplexity is that of the validation set, per word-piece; lower is better. That of a "
        "pruned trial is from the step at which it was pruned, before its learning rate had "
        "fallen, so it cannot be compared with that of a finished one."
    )
    yield (
        "The best of many trials with one seed owes part of its lead to chance: --confirm 3 "
        "trains the best and the base with other seeds."
    )
    yield (
        "Importances are shares of 1 by PED-ANOVA, which compares the best quarter of the trials "
        "with all; pruned ones count as worse than finished ones. They depend on the bounds of "
        "this space and do not say which value is best."
    )
    if any(each.name == "label_smoothing" for each in search.parameters):
        yield (
            "Label smoothing raises perplexity and yet can raise BLEU (section 5.4, rows (D) of "
            "Table 3): compare the BLEU of the best trials too."
        )
    if search.max_parameters is not None:
        yield (
            f"No model has more than {search.max_parameters:,} parameters; larger ones were not "
            "sampled."
        )
    for each in search.parameters:
        if each.sets:
            yield f"{', '.join(each.sets)} takes the value of {each.name}."


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
