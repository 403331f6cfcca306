"""The words and figures of a report as text, before they become Markdown, HTML or a terminal's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean

from ablations import formats
from ablations.plan import Plan, Value
from ablations.summary import Correlation, Estimate, RowSummary, Summary, Unfinished
from experiments.results import Result

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
COST = ("params", "at 40,960", "paper", "seeds", "tokens/s", "training")


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """One row of the report. ``state`` says what is missing, and is empty where nothing is."""

    name: str
    settings: tuple[str, ...]
    changes: str
    perplexity: tuple[str, ...]
    bleu: tuple[str, ...]
    cost: tuple[str, ...]
    state: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Document:
    """A report. ``facts`` pairs a name with a value; ``notes`` and ``problems`` are sentences."""

    title: str
    headline: str
    setting_names: tuple[str, ...]
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
    total = sum(len(row.row.seeds) for row in rows)
    corpus = plan.base.data.corpus
    return Document(
        title=plan.title,
        headline=(
            f"Table {plan.table} at scale {plan.scale} on {corpus.name} "
            f"({corpus.source_language} → {corpus.target_language}): "
            f"{len(summary.results)} of {total} runs finished."
        ),
        setting_names=tuple(SETTINGS[name] for name in shown),
        lines=tuple(_line(row, summary.base, shown) for row in rows),
        correlations=(
            ("perplexity", _correlation(summary.perplexity_correlation())),
            ("BLEU", _correlation(summary.bleu_correlation())),
        ),
        problems=tuple(
            f"{unfinished.cell.row}, seed {unfinished.cell.seed}: {describe_state(unfinished)}"
            for row in rows
            for unfinished in row.unfinished
        ),
        notes=tuple(_notes(summary)),
        facts=tuple(_facts(plan, summary.results)),
    )


def _line(row: RowSummary, base: RowSummary | None, shown: list[str]) -> Line:
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
        ),
        bleu=_figures(
            row.bleu,
            reported.bleu,
            base.bleu if base else None,
            base_reported.bleu if base_reported else None,
            is_base=row.is_base,
            digits=BLEU_DIGITS,
            paper_digits=1,
        ),
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
    if progress.stage == "train":
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


def _notes(summary: Summary) -> Iterable[str]:
    plan = summary.plan
    yield "A blank is the base's value. Δ is the row less the base; lower perplexity is better."
    if plan.divide_widths > 1 or plan.divide_layers > 1:
        yield (
            f"Columns show what was run: the paper's widths divided by {plan.divide_widths} and "
            f"its N by {plan.divide_layers}. Rows keep the names of the paper's values; compare "
            "the order and direction of the differences with the paper's, not their size."
        )
    spreads = [
        f"{formats.number(deviation, digits)} {label}"
        for name, label, digits in (("bleu", "BLEU", 2), ("perplexity", "perplexity", 4))
        if (deviation := summary.pooled_deviation(name)) is not None
    ]
    if spreads:
        yield (
            "± is the standard deviation over seeds; pooled over all rows it is "
            f"{' and '.join(spreads)}. Rows closer than about twice that cannot be told apart."
        )
    if any(len(row.results) == 1 for row in summary.rows):
        yield (
            "A figure without ± is of one seed. Differences within the noise of a seed cannot be "
            "told apart: at the paper's size that is about 0.3 to 0.5 BLEU, at a small scale more; "
            "perplexity separates rows better."
        )
    yield (
        "Parameters are in millions: the model's own, and with the embedding table of 40,960 "
        "rows that fits the paper's column (its big fits about 36,000)."
    )


def _facts(plan: Plan, results: tuple[Result, ...]) -> Iterable[tuple[str, str]]:
    base = plan.base
    yield (
        "scale",
        f"{plan.scale}: widths divided by {plan.divide_widths}, N by {plan.divide_layers}",
    )
    yield "corpus", f"{base.data.corpus.name} ({base.data.corpus.licence})"
    yield "vocabulary", f"{base.model.vocab_size:,} word-pieces"
    yield "batch", f"{base.data.tokens_per_batch:,} source and as many target tokens"
    yield (
        "schedule",
        f"{base.training.max_steps:,} steps, warm-up {base.training.warmup_steps:,}, "
        f"learning-rate factor {base.training.learning_rate_factor:g}",
    )
    yield (
        "decoding",
        f"beam {base.decoding.beam_size}, length penalty {base.decoding.length_penalty:g}, "
        f"average of {base.training.average_checkpoints} checkpoint(s)",
    )
    if not results:
        return
    yield "BLEU", _tally(result.bleu_signature for result in results)
    yield "device", _tally(result.device for result in results)
    yield "precision", _tally(result.precision for result in results)
    yield "versions", _tally(_versions(result) for result in results)
    yield "commit", _tally(result.commit for result in results)
    finished = sorted(result.finished_at[:16].replace("T", " ") for result in results)
    yield "finished", " to ".join(dict.fromkeys([finished[0], finished[-1]])) + " UTC"
    yield "training in all", formats.duration(sum(result.train_seconds for result in results))
    flops = f"{sum(result.flops for result in results):.1e}".replace("e+", "e")
    yield "arithmetic in all", f"{flops} FLOPs"


def _versions(result: Result) -> str:
    return ", ".join(f"{name} {version}" for name, version in sorted(result.versions.items()))


def _tally(values: Iterable[str]) -> str:
    """The one value that all share, or each with the number of its runs."""
    counts = Counter(values)
    if len(counts) == 1:
        return next(iter(counts))
    return "; ".join(f"{value} (runs: {number})" for value, number in counts.most_common())
