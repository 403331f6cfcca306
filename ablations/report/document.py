"""The words and figures of a report as text, before they become Markdown, HTML or a terminal's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import fmean

from ablations.report.correlation import Correlation
from ablations.report.estimates import Difference, Estimate
from ablations.report.evidence import (
    BLEU_DIGITS,
    PERPLEXITY_DIGITS,
    EvidenceLine,
    difference,
    evidence,
    verdicts,
)
from ablations.report.regime import regime, warning
from ablations.report.remarks import facts, notes
from ablations.report.states import describe_state, short_state, urgency
from ablations.report.summary import RowSummary, Summary
from ablations.tables.plan import PLAN_FILE, Value
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
FIGURES = ("", "paper", "Δ", "Δ paper")
# What some runs were scored by besides, and with how many decimals it is shown.
_EXTRAS = {
    "tokenised_bleu": ("BLEU tokenised", BLEU_DIGITS),
    "averaged_perplexity": ("PPL averaged", PERPLEXITY_DIGITS),
    "averaged_bleu": ("BLEU averaged", BLEU_DIGITS),
}
COST = ("parameters (M)", "with 40,960 rows", "paper's (M)", "seeds", "tokens/s", "training")


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """One row of the report. ``state`` says what is missing, and is empty where nothing is."""

    name: str
    settings: tuple[str, ...]
    changes: str
    perplexity: tuple[str, ...]
    bleu: tuple[str, ...]
    extras: tuple[str, ...]
    cost: tuple[str, ...]
    state: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Document:
    """A report. ``facts`` pairs a name with a value; ``verdicts``, ``notes`` and ``problems`` are
    sentences, and so is ``warning``, which may be empty. ``regime`` has the cells of a table under
    the heads :data:`ablations.report.regime.REGIME`.

    A table that is not the paper's has no figures to compare with, and no columns for them;
    ``extra_names`` are of columns that are there only if a run has a figure for them.
    """

    title: str
    headline: str
    setting_names: tuple[str, ...]
    figure_names: tuple[str, ...]
    extra_names: tuple[str, ...]
    lines: tuple[Line, ...]
    correlations: tuple[tuple[str, str], ...]
    regime: tuple[tuple[str, str, str], ...]
    warning: str
    verdicts: tuple[str, ...]
    evidence: tuple[EvidenceLine, ...]
    problems: tuple[str, ...]
    notes: tuple[str, ...]
    facts: tuple[tuple[str, str], ...]


def compose(summary: Summary) -> Document:
    """The report of a table."""
    plan, rows = summary.plan, summary.rows
    shown = [
        name for name in SETTINGS if name != "positions" or any(name in row.changed for row in rows)
    ]
    extras = [name for name in _EXTRAS if any(getattr(row, name) is not None for row in rows)]
    total = sum(len(row.row.seeds) for row in rows)
    compared = any(row.row.reported != Reported() for row in rows)
    corpus = plan.base.data.corpus
    of_base = summary.base.results if summary.base else ()
    numbers = regime(plan.base, of_base[0] if of_base else None) if compared else ()
    return Document(
        title=plan.title,
        headline=(
            f"Table {plan.table} at scale {plan.scale} on {corpus.name} "
            f"({corpus.source_language} → {corpus.target_language}): "
            f"{len(summary.results)} of {total} runs finished."
        ),
        setting_names=tuple(SETTINGS[name] for name in shown),
        figure_names=tuple(name for name in FIGURES if compared or "paper" not in name),
        extra_names=tuple(_EXTRAS[name][0] for name in extras),
        lines=tuple(_line(row, summary, shown, extras, compared) for row in rows),
        correlations=(
            ("perplexity", _correlation(summary.perplexity_correlation())),
            ("BLEU", _correlation(summary.bleu_correlation())),
        )
        if compared
        else (),
        regime=tuple(number.cells for number in numbers),
        warning=warning(numbers),
        verdicts=tuple(verdicts(summary)),
        evidence=tuple(evidence(summary)),
        problems=tuple(_problems(summary)),
        notes=tuple(notes(summary)),
        facts=tuple(facts(summary)),
    )


def _problems(summary: Summary) -> Iterator[str]:
    for row in summary.rows:
        for unfinished in row.unfinished:
            yield f"{row.row.name}, seed {unfinished.cell.seed}: {describe_state(unfinished)}"
    for name in summary.strangers:
        yield f"{name}: left out, for {PLAN_FILE} does not list it"


def _line(
    row: RowSummary, summary: Summary, shown: list[str], extras: list[str], compared: bool
) -> Line:
    cells = {name: _value(name, row.cells[name]) for name in shown}
    changes = [f"{SETTINGS[name]}={cells[name]}" for name in shown if name in row.changed]
    ours = row.row.reported
    perplexity = _figures(
        row.perplexity,
        ours.perplexity,
        summary.difference(row, "perplexity"),
        summary.reported_difference(row, "perplexity"),
        is_base=row.is_base,
        digits=PERPLEXITY_DIGITS,
        paper_digits=2,
    )
    bleu = _figures(
        row.bleu,
        ours.bleu,
        summary.difference(row, "bleu"),
        summary.reported_difference(row, "bleu"),
        is_base=row.is_base,
        digits=BLEU_DIGITS,
        paper_digits=1,
    )
    return Line(
        name=row.row.name,
        settings=tuple(cells[name] if row.is_base or name in row.changed else "" for name in shown),
        changes=" ".join(changes),
        perplexity=perplexity[:: 1 if compared else 2],
        bleu=bleu[:: 1 if compared else 2],
        extras=tuple(_mean(getattr(row, name), _EXTRAS[name][1]) for name in extras),
        cost=_cost(row),
        state=short_state(max(row.unfinished, key=urgency)) if row.unfinished else "",
    )


def _figures(
    ours: Estimate | None,
    paper: float | None,
    delta: Difference | None,
    paper_delta: float | None,
    *,
    is_base: bool,
    digits: int,
    paper_digits: int,
) -> tuple[str, ...]:
    """Ours, the paper's, and by how much each differs from its base."""
    return (
        _mean(ours, digits),
        formats.number(paper, paper_digits),
        "" if is_base else difference(delta, digits),
        "" if is_base else formats.difference(paper_delta, paper_digits),
    )


def _cost(row: RowSummary) -> tuple[str, ...]:
    done = row.results
    reported = row.row.reported.parameters_millions
    return (
        formats.millions(done[0].parameters) if done else formats.MISSING,
        formats.millions(done[0].parameters_paper_vocab) if done else formats.MISSING,
        "" if reported is None else str(reported),
        f"{len(done)}/{len(row.row.seeds)}",
        formats.count(fmean(r.tokens_per_second for r in done)) if done else formats.MISSING,
        formats.duration(fmean(r.train_seconds for r in done) if done else None),
    )


def _value(name: str, value: Value) -> str:
    if name == "max_steps":
        return formats.steps(int(value))
    return str(value)


def _mean(value: Estimate | None, digits: int) -> str:
    """A mean with its standard deviation, where there is one: ``82.1 ± 0.3``."""
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
