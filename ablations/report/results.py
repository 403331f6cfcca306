"""What the rows of a table came to: as tables of a report, as LaTeX and as CSV."""

from __future__ import annotations

import csv
import io
from statistics import fmean

from ablations.figures.curves import group_of
from ablations.report.details import SETTINGS, details, setting
from ablations.report.page import Column, Table
from ablations.report.statistics import Estimate
from ablations.report.summary import RowSummary, Summary, reported
from ablations.report.verdicts import NOISE
from ablations.tables.table import Reported
from experiments.run.measures import MEASURES, Measure
from transformer import formats

_IF_CHANGED = ("positions", "vocab_size", "target_language")
# Scores that only some runs have, and their decimals.
_OTHER_SCORES = {
    "tokenised_bleu": ("BLEU tokenised", MEASURES["bleu"].digits),
    "averaged_perplexity": ("PPL averaged", MEASURES["perplexity"].digits),
    "averaged_bleu": ("BLEU averaged", MEASURES["bleu"].digits),
    "averaged_f1": ("F1 averaged", MEASURES["f1"].digits),
}


def is_compared(summary: Summary) -> bool:
    """Whether the paper gives figures for a row."""
    return any(row.row.reported != Reported() for row in summary.rows)


def state(row: RowSummary) -> str:
    """What is missing of a row; empty if nothing is."""
    return max(row.unfinished, key=lambda run: run.urgency).short if row.unfinished else ""


def results_table(summary: Summary) -> Table:
    """Settings, figures and, in a terminal, changes; with the state of rows without a result."""
    rows, compared, shown = summary.rows, is_compared(summary), shown_settings(summary)
    others = [name for name in _OTHER_SCORES if any(name in row.scores for row in rows)]
    columns = [
        Column("row"),
        *(Column(SETTINGS[name], style="setting", only="page") for name in shown),
    ]
    for measure in summary.measures:
        group = measure.short
        columns.append(Column("", group, style="ours"))
        columns += [Column("paper", group, style="theirs")] * compared
        columns.append(Column("Δ", group))
        columns += [Column("Δ paper", group, style="theirs")] * compared
    columns += [Column(_OTHER_SCORES[name][0], optional=1) for name in others]
    with_flops = any(row.row.reported.flops is not None for row in rows)
    if with_flops:
        columns += [Column("", "FLOPs", style="ours"), Column("nominal", "FLOPs")]
        columns += [Column("paper", "FLOPs", style="theirs")]
    columns.append(Column("", "params (M)", style="ours", only="page"))
    columns += [Column("paper", "params (M)", style="theirs", only="page")] * compared
    columns.append(Column("changes", style="words", only="terminal", optional=2))
    lines: list[tuple[str, ...]] = []
    styles: list[str] = []
    for row in rows:
        values = {name: setting(name, row.settings[name]) for name in shown}
        line = [row.row.name]
        known = row.changed if not row.is_base else shown
        line += [values[name] if name in known else "" for name in shown]
        first = len(line)
        for measure in summary.measures:
            line += scores(summary, row, measure)[:: 1 if compared else 2]
        line += [_mean(row.scores.get(name), _OTHER_SCORES[name][1]) for name in others]
        line += _flops(row) if with_flops else ()
        line += parameters(row)[: 1 + compared]
        line.append(" ".join(f"{SETTINGS[x]}={values[x]}" for x in shown if x in row.changed))
        if not row.results and not row.row.published:
            line[first] = state(row)
        lines.append(tuple(line))
        failed = "failed" if state(row) == "failed" else "unfinished"
        styles.append("" if row.results or row.row.published else failed)
    for index in group_starts(summary):
        styles[index] += " group-start"
    if any(row.results and row.results[0].parses for row in rows):
        lines.append(_baseline(summary, columns))
        styles.append("group-start")
    return Table(
        columns=tuple(columns),
        rows=tuple(lines),
        row_styles=tuple(styles),
        terminal=True,
        name="rows",
        details=(*(details(summary, row) for row in rows), *[()] * (len(lines) - len(rows))),
    )


def _baseline(summary: Summary, columns: list[Column]) -> tuple[str, ...]:
    """A row with the F1 of trees that branch to the right, the same for all runs."""
    result = next(row.results[0] for row in summary.rows if row.results)
    f1 = {
        MEASURES[name].short: formats.number(parses.baseline_f1, MEASURES[name].digits)
        for name, parses in (("f1", result.parses), ("test_f1", result.test_parses))
        if parses is not None
    }
    cells = (f1.get(x.group, "") if x.style == "ours" else "" for x in columns[1:])
    return ("right-branching", *cells)


def shown_settings(summary: Summary) -> list[str]:
    """The columns of settings; those without a column in Table 3 only where a row changes them."""
    changed = {name for row in summary.rows for name in row.changed}
    return [name for name in SETTINGS if name not in _IF_CHANGED or name in changed]


def group_starts(summary: Summary) -> list[int]:
    """The indices of rows above which the table has a rule, as the paper's."""
    groups = [
        (row.settings["target_language"], "" if row.row.published else group_of(row.row.name))
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
    if row.is_base or row.row.published or "target_language" in row.changed:
        return ours, paper, "", ""
    found = summary.difference(row, name)
    delta = formats.difference(found.mean if found else None, digits)
    if found and found.within_noise:
        delta += NOISE
    theirs = summary.reported_difference(row, name)
    return ours, paper, delta, formats.difference(theirs, measure.paper_digits)


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
    heads = ("row", "seeds", "parameters (M)", "with 40,960 rows", "FLOPs", "tokens/s", "training")
    rows: list[tuple[str, ...]] = []
    for row in summary.rows:
        if row.row.published:
            continue
        done = row.results
        cells = [row.row.name, f"{len(done)}/{len(row.row.seeds)}"]
        if done:
            cells += [
                formats.millions(done[0].parameters),
                formats.millions(done[0].parameters_paper_vocab),
                _powers(fmean(result.flops for result in done)),
                formats.count(fmean(result.tokens_per_second for result in done)),
                formats.duration(fmean(result.train_seconds for result in done)),
            ]
        rows.append((*cells, *[formats.MISSING] * (len(heads) - len(cells))))
    return Table(columns=tuple(Column(name) for name in heads), rows=tuple(rows), terminal=True)


def to_csv(summary: Summary) -> str:
    """A line for each finished run, with its settings, figures and cost, and the paper's."""
    settings = list(SETTINGS)
    of_result = (
        "seed",
        "perplexity",
        "bleu",
        "tokenised_bleu",
        "test_perplexity",
        "test_bleu",
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
    writer.writerow(["row", *settings, *of_result, "paper_perplexity", "paper_bleu"])
    for row in summary.rows:
        reported = row.row.reported
        for result in row.results:
            writer.writerow(
                [
                    row.row.name,
                    *(row.settings[name] for name in settings),
                    *(getattr(result, name) for name in of_result),
                    reported.perplexity,
                    reported.bleu,
                ]
            )
    return text.getvalue()


def _mean(value: Estimate | None, digits: int) -> str:
    """A mean with its standard deviation, if there is one: ``82.1 ± 0.3``."""
    mean = formats.number(value.mean if value else None, digits)
    if value is None or value.deviation is None:
        return mean
    return f"{mean} ± {formats.number(value.deviation, digits)}"
