"""The words and figures of a report as text, before they become Markdown, HTML or a terminal's."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean

from ablations import formats
from ablations.plan import Value
from ablations.remarks import facts, notes
from ablations.summary import Correlation, Estimate, RowSummary, Summary, Unfinished
from ablations.table import Reported

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
PERPLEXITY_DIGITS, BLEU_DIGITS = 3, 1
FIGURES = ("", "paper", "Δ", "Δ paper")
# What some runs were scored by besides, and with how many decimals it is shown.
_EXTRAS = {
    "tokenised_bleu": ("BLEU tokenised", BLEU_DIGITS),
    "averaged_perplexity": ("PPL averaged", PERPLEXITY_DIGITS),
    "averaged_bleu": ("BLEU averaged", BLEU_DIGITS),
}
COST = ("params", "at 40,960", "paper", "seeds", "tokens/s", "training")


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
    """A report. ``facts`` pairs a name with a value; ``notes`` and ``problems`` are sentences.

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
        lines=tuple(_line(row, summary.base, shown, extras, compared) for row in rows),
        correlations=(
            ("perplexity", _correlation(summary.perplexity_correlation())),
            ("BLEU", _correlation(summary.bleu_correlation())),
        )
        if compared
        else (),
        problems=tuple(
            f"{unfinished.cell.row}, seed {unfinished.cell.seed}: {describe_state(unfinished)}"
            for row in rows
            for unfinished in row.unfinished
        ),
        notes=tuple(notes(summary)),
        facts=tuple(facts(summary)),
    )


def _line(
    row: RowSummary, base: RowSummary | None, shown: list[str], extras: list[str], compared: bool
) -> Line:
    cells = {name: _value(name, row.cells[name]) for name in shown}
    changes = [f"{SETTINGS[name]}={cells[name]}" for name in shown if name in row.changed]
    reported, base_reported = row.row.reported, base.row.reported if base else None
    return Line(
        name=row.row.name,
        settings=tuple(cells[name] if row.is_base or name in row.changed else "" for name in shown),
        changes=" ".join(changes),
        perplexity=_figures(
            row.perplexity,
            reported.perplexity,
            base.perplexity if base else None,
            base_reported.perplexity if base_reported else None,
            is_base=row.is_base,
            digits=PERPLEXITY_DIGITS,
            paper_digits=2,
        )[:: 1 if compared else 2],
        bleu=_figures(
            row.bleu,
            reported.bleu,
            base.bleu if base else None,
            base_reported.bleu if base_reported else None,
            is_base=row.is_base,
            digits=BLEU_DIGITS,
            paper_digits=1,
        )[:: 1 if compared else 2],
        extras=tuple(estimate(getattr(row, name), _EXTRAS[name][1]) for name in extras),
        cost=_cost(row),
        state=_short_state(max(row.unfinished, key=_rank)) if row.unfinished else "",
    )


def _figures(
    ours: Estimate | None,
    paper: float | None,
    base: Estimate | None,
    base_paper: float | None,
    *,
    is_base: bool,
    digits: int,
    paper_digits: int,
) -> tuple[str, ...]:
    """Ours, the paper's, and by how much each differs from its base."""
    delta = ours.mean - base.mean if ours and base else None
    paper_delta = None if paper is None or base_paper is None else paper - base_paper
    return (
        estimate(ours, digits),
        formats.number(paper, paper_digits),
        "" if is_base else formats.difference(delta, digits),
        "" if is_base else formats.difference(paper_delta, paper_digits),
    )


def estimate(value: Estimate | None, digits: int) -> str:
    """A mean with its spread, where there is one: ``82.1 ± 0.3``."""
    if value is None:
        return formats.MISSING
    mean = formats.number(value.mean, digits)
    if value.deviation is None:
        return mean
    return f"{mean} ± {formats.number(value.deviation, digits)}"


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


def _short_state(unfinished: Unfinished) -> str:
    progress = unfinished.progress
    if progress is None:
        return "missing"
    if progress.stage == "failed":
        return "failed"
    if progress.stage == "train" and progress.max_steps:
        return f"step {progress.step:,} of {progress.max_steps:,}"
    return "in evaluation" if progress.stage in ("evaluate", "done") else "in preparation"


def _rank(unfinished: Unfinished) -> tuple[bool, bool, int]:
    """What a row with several unfinished runs shows: a failure before all, then the furthest."""
    progress = unfinished.progress
    if progress is None:
        return False, False, 0
    return progress.stage == "failed", True, progress.step


def describe_state(unfinished: Unfinished) -> str:
    """How far a cell without a result came."""
    progress = unfinished.progress
    if progress is not None and progress.stage == "failed":
        where = f" at step {progress.step:,} of {progress.max_steps:,}" if progress.step else ""
        return f"failed{where} ({progress.message or 'no reason was left'})"
    return _short_state(unfinished)


def _correlation(correlation: Correlation) -> str:
    rows = "1 row" if correlation.count == 1 else f"{correlation.count} rows"
    if correlation.value is None:
        return f"undefined ({rows})"
    return f"{formats.difference(correlation.value, 2)} ({rows})"
