"""What the rows of a table came to: as tables of a report, as LaTeX and as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from statistics import fmean

from ablations.figures.curves import group_of
from ablations.report.details import details, label, setting
from ablations.report.page import Column, Table
from ablations.report.statistics import Estimate
from ablations.report.summary import RowSummary, Summary, reported
from ablations.report.verdicts import NOISE
from ablations.tables.changes import COLUMNS
from experiments.run.measures import MEASURES, Measure
from transformer import formats

# A column, and its cell in each row.
Cells = tuple[Column, Callable[[RowSummary], str]]
_OF_MEASURE = (("", "ours"), ("paper", "theirs"), ("Δ", ""), ("Δ paper", "theirs"))
# Not columns of Table 3.
_IF_CHANGED = {"positions", "vocab_size", "target_language"}
# Scores that only some runs have, and their decimals.
_OTHER_SCORES = {
    "tokenised_bleu": ("BLEU tokenised", MEASURES["bleu"].digits),
    "averaged_perplexity": ("PPL averaged", MEASURES["perplexity"].digits),
    "averaged_bleu": ("BLEU averaged", MEASURES["bleu"].digits),
    "averaged_f1": ("F1 averaged", MEASURES["f1"].digits),
}


def state(row: RowSummary) -> str:
    """What is missing of a row; empty if nothing is."""
    return max(row.unfinished, key=lambda run: run.urgency).short if row.unfinished else ""


def results_table(summary: Summary) -> Table:
    """Settings, figures and, in a terminal, changes; with the state of rows without a result."""
    rows = summary.rows
    columns = [*_settings(summary), *_scores(summary), *_sizes(summary)]
    columns += [*_references(summary), _changes(summary)]
    lines = [[row.row.name, *(cell(row) for _, cell in columns)] for row in rows]
    heads = [Column("row"), *(column for column, _ in columns)]
    styles = [_style(row) for row in rows]
    for line, row in zip(lines, rows, strict=True):
        if not row.results and not row.row.published:
            line[1 + len(shown_settings(summary))] = state(row)
    for index in group_starts(summary):
        styles[index] += " group-start"
    if any(row.results and row.results[0].parses for row in rows):
        lines.append(_baseline(summary, heads))
        styles.append("group-start")
    return Table(
        columns=tuple(heads),
        rows=tuple(tuple(line) for line in lines),
        row_styles=tuple(styles),
        terminal=True,
        name="rows",
        details=(*(details(summary, row) for row in rows), *[()] * (len(lines) - len(rows))),
    )


def _style(row: RowSummary) -> str:
    if row.results or row.row.published:
        return ""
    return "failed" if state(row) == "failed" else "unfinished"


def _settings(summary: Summary) -> Iterator[Cells]:
    shown = shown_settings(summary)

    def cell(row: RowSummary, name: str) -> str:
        known = shown if row.is_base else row.changed
        return setting(name, row.settings[name]) if name in known else ""

    for name in shown:
        yield Column(label(name), style="setting", only="page"), partial(cell, name=name)


def _scores(summary: Summary) -> Iterator[Cells]:
    """Each measure: ours, the paper's if it has any, and differences if rows have the same text."""

    def cell(row: RowSummary, measure: Measure, index: int) -> str:
        return scores(summary, row, measure)[index]

    def other(row: RowSummary, name: str, digits: int) -> str:
        return _mean(row.scores.get(name), digits)

    comparable = any(_has_base(row) and not row.is_base for row in summary.rows)
    for measure in summary.measures:
        with_paper = any(reported(row, measure.name) is not None for row in summary.rows)
        shown = (True, with_paper, comparable, with_paper and comparable)
        for index, (name, style) in enumerate(_OF_MEASURE):
            if shown[index]:
                column = Column(name, measure.short, style=style)
                yield column, partial(cell, measure=measure, index=index)
    for name, (title, digits) in _OTHER_SCORES.items():
        if any(name in row.scores for row in summary.rows):
            yield Column(title, optional=1), partial(other, name=name, digits=digits)


def _sizes(summary: Summary) -> Iterator[Cells]:
    if any(row.row.reported.flops is not None for row in summary.rows):
        for index, (name, style) in enumerate((("", "ours"), ("nominal", ""), ("paper", "theirs"))):
            yield Column(name, "FLOPs", style=style), partial(_nth, _flops, index)
    yield Column("", "params (M)", style="ours", only="page"), partial(_nth, parameters, 0)
    if any(row.row.reported.parameters_millions for row in summary.rows):
        column = Column("paper", "params (M)", style="theirs", only="page")
        yield column, partial(_nth, parameters, 1)


def _references(summary: Summary) -> Iterator[Cells]:
    """What others found, if rows say so."""
    if any(row.row.reference for row in summary.rows):
        yield Column("reference", style="theirs words", optional=1), lambda row: row.row.reference


def _nth(cells: Callable[[RowSummary], Sequence[str]], index: int, row: RowSummary) -> str:
    return cells(row)[index]


def _changes(summary: Summary) -> Cells:
    shown = shown_settings(summary)

    def cell(row: RowSummary) -> str:
        changed = [name for name in shown if name in row.changed]
        return " ".join(f"{COLUMNS.get(x, x)}={setting(x, row.settings[x])}" for x in changed)

    return Column("changes", style="words", only="terminal", optional=2), cell


def _baseline(summary: Summary, columns: Sequence[Column]) -> list[str]:
    """A row with the F1 of trees that branch to the right, the same for all runs."""
    result = next(row.results[0] for row in summary.rows if row.results)
    f1 = {
        MEASURES[name].short: formats.number(parses.baseline_f1, MEASURES[name].digits)
        for name, parses in (("f1", result.parses), ("test_f1", result.test_parses))
        if parses is not None
    }
    cells = (f1.get(x.group, "") if x.style == "ours" else "" for x in columns[1:])
    return ["right-branching", *cells]


def shown_settings(summary: Summary) -> list[str]:
    """The columns of settings: those that rows change and, next to the paper, all of Table 3."""
    names = {name for row in summary.rows for name in row.changed}
    if summary.plan.is_compared:
        names |= COLUMNS.keys() - _IF_CHANGED
    return [name for name in summary.plan.shown if name in names]


def group_starts(summary: Summary) -> list[int]:
    """The indices of rows above which the table has a rule: as the paper's, or by language."""
    grouped = summary.plan.is_compared
    groups = [
        (
            row.settings["target_language"],
            group_of(row.row.name) if grouped and not row.row.published else "",
        )
        for row in summary.rows
    ]
    return [index for index in range(1, len(groups)) if groups[index] != groups[index - 1]]


def parameters(row: RowSummary) -> tuple[str, str]:
    """Ours and the paper's in millions."""
    reported = row.row.reported.parameters_millions
    ours = formats.millions(row.results[0].parameters) if row.results else formats.MISSING
    ours = "" if row.row.published else ours
    return ours, "" if reported is None else str(reported)


def scores(summary: Summary, row: RowSummary, measure: Measure) -> tuple[str, ...]:
    """Ours, the paper's, and how much each differs from its base."""
    name, digits = measure.name, measure.digits
    ours = "" if row.row.published else _mean(row.scores.get(name), digits)
    paper = formats.number(reported(row, name), measure.paper_digits)
    if row.is_base or not _has_base(row):
        return ours, paper, "", ""
    found = summary.difference(row, name)
    delta = formats.difference(found.mean if found else None, digits)
    if found and found.within_noise:
        delta += NOISE
    theirs = summary.reported_difference(row, name)
    return ours, paper, delta, formats.difference(theirs, measure.paper_digits)


def _has_base(row: RowSummary) -> bool:
    """Whether its scores are of the same text as the base's."""
    return not row.row.published and "target_language" not in row.changed


def _flops(row: RowSummary) -> tuple[str, str, str]:
    """Ours by the model's products, ours by time and nominal peak as in the paper, the paper's."""
    nominal = [x.flops_nominal for x in row.results if x.flops_nominal is not None]
    ours = [x.flops for x in row.results]
    return (
        _powers(fmean(ours)) if ours else "",
        _powers(fmean(nominal)) if nominal else "",
        _powers(row.row.reported.flops) if row.row.reported.flops else "",
    )


def _powers(flops: float) -> str:
    return f"{flops:.2g}".replace("e+", "e")


def cost_table(summary: Summary) -> Table:
    """What each row took: means over its runs."""
    heads = ["row", "seeds", "parameters (M)", "FLOPs", "tokens/s", "training"]
    if summary.plan.is_compared:
        heads.insert(3, "with 40,960 rows")
    rows: list[tuple[str, ...]] = []
    for row in summary.rows:
        if row.row.published:
            continue
        done = row.results
        cells = [row.row.name, f"{len(done)}/{len(row.row.seeds)}"]
        if done:
            cells += [
                formats.millions(done[0].parameters),
                *[formats.millions(done[0].parameters_paper_vocab)] * summary.plan.is_compared,
                _powers(fmean(result.flops for result in done)),
                formats.count(fmean(result.tokens_per_second for result in done)),
                formats.duration(fmean(result.train_seconds for result in done)),
            ]
        rows.append((*cells, *[formats.MISSING] * (len(heads) - len(cells))))
    return Table(columns=tuple(Column(name) for name in heads), rows=tuple(rows), terminal=True)


def to_csv(summary: Summary) -> str:
    """A line for each finished run, with its settings, figures and cost, and the paper's."""
    settings = summary.plan.shown
    of_result = (
        "seed",
        "perplexity",
        "bleu",
        "tokenised_bleu",
        "test_perplexity",
        "test_bleu",
        "f1",
        "test_f1",
        "parameters",
        "steps",
        "target_tokens",
        "flops",
        "train_seconds",
        "tokens_per_second",
        "device",
        "precision",
        "commit",
    )
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    quoted = summary.plan.measures if summary.plan.is_compared else ()
    writer.writerow(["row", *settings, *of_result, *(f"paper_{name}" for name in quoted)])
    for row in summary.rows:
        for result in row.results:
            writer.writerow(
                [
                    row.row.name,
                    *(row.settings[name] for name in settings),
                    *(getattr(result, name) for name in of_result),
                    *(reported(row, name) for name in quoted),
                ]
            )
    return text.getvalue()


def _mean(value: Estimate | None, digits: int) -> str:
    """A mean with its standard deviation, if there is one: ``82.1 ± 0.3``."""
    mean = formats.number(value.mean if value else None, digits)
    if value is None or value.deviation is None:
        return mean
    return f"{mean} ± {formats.number(value.deviation, digits)}"
