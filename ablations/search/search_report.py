"""The report of a search: its best trial, what matters, and all trials."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from ablations.figures.curves import read_curve
from ablations.figures.search import (
    draw_history,
    draw_importances,
    draw_parallel,
    draw_slices,
    draw_trial_curves,
)
from ablations.report.notes import facts_of_base, facts_of_results
from ablations.report.page import Column, Facts, Figure, Figures, Page, Table, Text, make_page
from ablations.report.write import write_page
from ablations.runner.attempts import locate
from ablations.search.search import Search, load_search
from ablations.search.trials import Trial, best, ranked, read_trials
from ablations.tables.changes import COLUMNS, Value
from experiments.run.measures import MEASURES
from experiments.run.progress import RunState
from transformer import formats
from transformer.config import Config
from transformer.evaluation.counts import count_parameters

# The importances of fewer trials are chance.
_MIN_TRIALS = 10
_MAX_CURVES = 100
_NAMES = {
    **COLUMNS,
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


def write_search_report(directory: Path) -> Page:
    """Write the report into a search's directory: HTML, Markdown and figures.

    Raises:
        InputError: if the directory is not a search's, or a file in it cannot be read.
    """
    search = load_search(directory)
    trials = read_trials(search, directory)
    shares: dict[str, float] = {}
    if len(ranked(trials)) >= _MIN_TRIALS:
        from ablations.search.sampler import importances  # imports Optuna, which takes a while

        shares = importances(search, trials)
    page = compose_search(search, trials, shares, directory)
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
    shares = {_label(name): share for name, share in importances.items()}
    matters = f"Fewer than {_MIN_TRIALS} trials have ended, too few to tell what matters."
    if shares:
        said = ", ".join(f"{name} {share:.0%}" for name, share in shares.items())
        matters = f"What decides whether a trial is among the best tenth: {said}."
    drawn = _figures(search, trials, shares, directory)
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
        ("Progress", [drawn("history", "curves")]),
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


def _figures(
    search: Search, trials: Sequence[Trial], shares: Mapping[str, float], directory: Path
) -> Callable[..., Figures]:
    """A function from names to those of the figures for which there are enough trials."""
    shown = [trial for trial in trials if trial.values]
    seed, found = search.base.training.seed, best(trials)
    curves = [
        read_curve(locate(directory / trial.name), trial.name, seed)
        for trial in sorted(shown, key=lambda x: x.perplexity or math.inf)[:_MAX_CURVES]
    ]
    captions = {
        "history": "Perplexity on the validation set by trial; the line is the best so far.",
        "curves": "Perplexity on the validation set during training, a line for each trial "
        f"(of the {_MAX_CURVES} best), the best in blue.",
        "importances": "Shares of the parameters in what makes a trial one of the best tenth.",
        "parallel": "Each trial as a line through its values, coloured by its rank.",
        "slices": "Perplexity on the validation set against each parameter by itself.",
    }
    specs = {
        "history": draw_history(trials),
        "curves": draw_trial_curves(curves, found.name if found else None),
        "importances": draw_importances(shares),
        "parallel": draw_parallel(shown, search.parameters),
        "slices": draw_slices(shown, search.parameters),
    }
    drawn = {
        name: Figure(name=name, spec=spec, caption=captions[name])
        for name, spec in specs.items()
        if spec is not None
    }
    return lambda *names: Figures(tuple(drawn[name] for name in names if name in drawn))


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
        for label, name in (("PPL", "perplexity"), ("BLEU", "bleu")):
            scores = (getattr(result, name, None) for result in (of_base, found.result))
            ours, theirs = (formats.number(score, MEASURES[name].digits) for score in scores)
            rows.append((label, ours, theirs))
        rows += [
            (_label(x.name), _value(base[x.name]), _value(found.values[x.name]))
            for x in search.parameters
        ]
        of_best = search.configure(found.values)
        rows.append(("params", _millions(search.base), _millions(of_best)))
    columns = (Column("setting"), Column("base", style="theirs"), Column("best", style="ours"))
    return Table(columns=columns, rows=tuple(rows), terminal=True)


def _trials(search: Search, trials: Sequence[Trial], found: Trial | None) -> Table:
    columns = [Column("trial"), Column("state", style="state"), Column("step")]
    columns += [Column("PPL", style="found"), Column("BLEU"), Column("params")]
    columns += [Column(_label(each.name)) for each in search.parameters]
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
                    *(_value(trial.values[each.name]) for each in search.parameters),
                )
            )
    return Table(columns=tuple(columns), rows=tuple(rows), row_styles=tuple(styles), name="trials")


def _notes(search: Search) -> Iterator[str]:
    yield (
        "Perplexity is that of the validation set, per word-piece; lower is better. That of a "
        "pruned trial is from the step at which it was pruned, before its learning rate had "
        "fallen, so it cannot be compared with that of a finished one."
    )
    yield (
        "The best of many trials with one seed owes part of its lead to chance: train it and the "
        "base with other seeds before relying on it."
    )
    yield (
        "Importances are shares of 1 by PED-ANOVA; pruned trials count as worse than finished "
        "ones. They depend on the bounds of this space and do not say which value is best."
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
    yield from facts_of_base(search.base)
    yield from facts_of_results([trial.result for trial in trials if trial.result])


def _label(name: str) -> str:
    return _NAMES.get(name, name.replace("_", " "))


def _value(value: Value) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _millions(config: Config) -> str:
    return formats.millions(count_parameters(config.model))
