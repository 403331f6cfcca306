"""The report of a table: its results beside the paper's figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import fmean

from ablations.files import PLAN_FILE
from ablations.report.notes import facts, notes, regime, regime_warning
from ablations.report.page import (
    Column,
    Facts,
    Figure,
    Figures,
    Page,
    Table,
    Text,
    make_page,
    write_page,
)
from ablations.report.scatter import scatter
from ablations.report.statistics import Correlation, Estimate
from ablations.report.summary import MEASURES, RowSummary, Summary, summarise
from ablations.report.verdicts import DIGITS, NOISE, seeds_table, verdicts
from ablations.tables.plan import Value
from ablations.tables.table import Reported
from transformer import formats

# Table 3's columns, in its order, under its names.
SETTINGS = {
    "num_layers": "N",
    "d_model": "d_model",
    "d_ff": "d_ff",
    "num_heads": "h",
    "d_k": "d_k",
    "d_v": "d_v",
    "dropout": "P_drop",
    "label_smoothing": "ε_ls",
    "positions": "positions",
    "max_steps": "steps",
}
# Scores that only some runs have, and their decimals.
_OTHER_SCORES = {
    "tokenised_bleu": ("BLEU tokenised", DIGITS["bleu"]),
    "averaged_perplexity": ("PPL averaged", DIGITS["perplexity"]),
    "averaged_bleu": ("BLEU averaged", DIGITS["bleu"]),
}
_PAPER_DIGITS = {"perplexity": 2, "bleu": 1}


def write_report(directory: Path) -> Page:
    """Write ``report.md`` and ``report.html`` into a table's directory.

    Raises:
        InputError: if the directory is not a table's, or a file in it cannot be read.
    """
    page = compose(summarise(directory))
    write_page(page, directory)
    return page


def compose(summary: Summary) -> Page:
    """The report of a table; one that is not the paper's is not compared with it."""
    plan, base = summary.plan, summary.base
    corpus = plan.base.data.corpus
    total = sum(len(row.row.seeds) for row in summary.rows)
    headline = (
        f"Table {plan.table} at scale {plan.scale} on {corpus.name} "
        f"({corpus.source_language} → {corpus.target_language}): "
        f"{len(summary.results)} of {total} runs finished."
    )
    numbers, correlations, sentence = (), dict[str, str](), ""
    if _is_compared(summary):
        numbers = regime(plan.base, base.results[0] if base and base.results else None)
        correlations = {name: _correlation(summary.correlation(name)) for name in MEASURES}
        sentence = (
            "Spearman's rank correlation with the paper's rows: "
            f"perplexity {correlations['perplexity']}, BLEU {correlations['bleu']}."
        )
    here, paper = Column("here", style="ours"), Column("paper", style="theirs")
    regime_rows = tuple(number.cells for number in numbers)
    return make_page(
        plan.title,
        (
            "",
            [
                Text((headline,), style="headline", terminal=True),
                _results(summary),
                Text((sentence,), terminal=True),
            ],
        ),
        ("Ours against the paper", [Figures(tuple(_scatters(summary, correlations)))]),
        (
            "What the seeds show",
            [Text(tuple(verdicts(summary)), is_list=True, terminal=True), seeds_table(summary)],
        ),
        (
            "This scale and the paper's",
            [
                Table(columns=(Column("number"), here, paper), rows=regime_rows),
                Text((regime_warning(numbers),), terminal=True),
            ],
        ),
        (
            "Not finished",
            [Text(tuple(_problems(summary)), style="problems", is_list=True, terminal=True)],
        ),
        ("Cost", [_cost(summary)]),
        ("How to read it", [Text(tuple(notes(summary)), is_list=True)]),
        ("Set-up", [Facts(tuple(facts(summary)))]),
    )


def _scatters(summary: Summary, correlations: Mapping[str, str]) -> Iterator[Figure]:
    bounds = " with 95 % intervals" if seeds_table(summary).rows else ""
    for name, label in MEASURES.items():
        drawn = scatter(summary, name)
        if drawn is not None:
            yield Figure(
                shape="scatter",
                data=drawn,
                caption=f"{label}, differences from the base: the paper's from left to right, ours "
                f"upwards{bounds}. Filled: agrees; red: contradicts; hollow: not told apart from "
                f"the base. Rank correlation {correlations[name]}.",
                label=f"{label}, ours against the paper",
            )


def _is_compared(summary: Summary) -> bool:
    return any(row.row.reported != Reported() for row in summary.rows)


def _state(row: RowSummary) -> str:
    """What is missing of a row; empty if nothing is."""
    return max(row.unfinished, key=lambda run: run.urgency).short if row.unfinished else ""


def _problems(summary: Summary) -> Iterator[str]:
    for row in summary.rows:
        for run in row.unfinished:
            yield f"{row.row.name}, seed {run.cell.seed}: {run}"
    for name in summary.unplanned:
        yield f"{name}: left out, as {PLAN_FILE} does not list it"


def _results(summary: Summary, *, states: bool = True) -> Table:
    """Settings, figures and, in a terminal, changes; with the state of rows without a result."""
    rows, compared = summary.rows, _is_compared(summary)
    shown = [
        name for name in SETTINGS if name != "positions" or any(name in row.changed for row in rows)
    ]
    scores = [x for x in _OTHER_SCORES if any(getattr(row, x) is not None for row in rows)]
    columns = [Column("row"), *(Column(SETTINGS[name], only="page") for name in shown)]
    for group in ("PPL", "BLEU"):
        columns.append(Column("", group, style="ours"))
        columns += [Column("paper", group, style="theirs")] * compared
        columns.append(Column("Δ", group))
        columns += [Column("Δ paper", group, style="theirs")] * compared
    columns += [Column(_OTHER_SCORES[name][0], optional=1) for name in scores]
    columns.append(Column("changes", style="words", only="terminal", optional=2))
    lines: list[tuple[str, ...]] = []
    styles: list[str] = []
    for row in rows:
        values = {name: _value(name, row.settings[name]) for name in shown}
        line = [row.row.name]
        line += [values[name] if row.is_base or name in row.changed else "" for name in shown]
        first = len(line)
        for name in MEASURES:
            line += _figures(summary, row, name)[:: 1 if compared else 2]
        line += [_mean(getattr(row, name), _OTHER_SCORES[name][1]) for name in scores]
        line.append(" ".join(f"{SETTINGS[x]}={values[x]}" for x in shown if x in row.changed))
        if states and not row.results:
            line[first] = _state(row)
        lines.append(tuple(line))
        failed = "failed" if _state(row) == "failed" else "unfinished"
        styles.append("" if row.results else failed)
    return Table(columns=tuple(columns), rows=tuple(lines), row_styles=tuple(styles), terminal=True)


def _figures(summary: Summary, row: RowSummary, name: str) -> tuple[str, ...]:
    """Ours, the paper's, and how much each differs from its base."""
    digits, paper_digits = DIGITS[name], _PAPER_DIGITS[name]
    ours = _mean(getattr(row, name), digits)
    paper = formats.number(getattr(row.row.reported, name), paper_digits)
    if row.is_base:
        return ours, paper, "", ""
    found = summary.difference(row, name)
    delta = formats.difference(found.mean if found else None, digits)
    if found and found.within_noise:
        delta += NOISE
    return (
        ours,
        paper,
        delta,
        formats.difference(summary.reported_difference(row, name), paper_digits),
    )


def _cost(summary: Summary) -> Table:
    heads = ("row", "parameters (M)", "with 40,960 rows", "paper's (M)", "seeds", "tokens/s")
    rows: list[tuple[str, ...]] = []
    for row in summary.rows:
        done, reported = row.results, row.row.reported.parameters_millions
        rows.append(
            (
                row.row.name,
                formats.millions(done[0].parameters) if done else formats.MISSING,
                formats.millions(done[0].parameters_paper_vocab) if done else formats.MISSING,
                "" if reported is None else str(reported),
                f"{len(done)}/{len(row.row.seeds)}",
                formats.count(fmean(r.tokens_per_second for r in done))
                if done
                else formats.MISSING,
                formats.duration(fmean(r.train_seconds for r in done) if done else None),
            )
        )
    columns = tuple(Column(name) for name in (*heads, "training"))
    return Table(columns=columns, rows=tuple(rows), terminal=True)


def _value(name: str, value: Value) -> str:
    return formats.steps(int(value)) if name == "max_steps" else str(value)


def _mean(value: Estimate | None, digits: int) -> str:
    """A mean with its standard deviation, if there is one: ``82.1 ± 0.3``."""
    mean = formats.number(value.mean if value else None, digits)
    if value is None or value.deviation is None:
        return mean
    return f"{mean} ± {formats.number(value.deviation, digits)}"


def _correlation(correlation: Correlation) -> str:
    rows = "1 row" if correlation.count == 1 else f"{correlation.count} rows"
    if correlation.value is None:
        return f"undefined ({rows})"
    value = formats.difference(correlation.value, 2)
    if correlation.interval is None:
        return f"{value} ({rows})"
    low, high = (formats.difference(end, 2) for end in correlation.interval)
    return f"{value} ({rows}, 95 % in {low} to {high})"
