"""The set-up and the cost of a table or search."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from ablations.report.grid import Column, Grid
from ablations.report.table_numbers import TableNumbers
from ablations.tables.changes import COLUMNS, Value, columns, is_option
from experiments.records.result import Result
from transformer import formats
from transformer.config import OPTIONS_OF, Config
from transformer.variant import class_name

_SIZES = 9  # columns of Table 3 that describe the model
_SHARED = {
    "BLEU": "bleu_signature",
    "BLEU tokenised": "tokenised_bleu_signature",
    "chrF": "chrf_signature",
    "data": "data_digest",
    "device": "device",
    "precision": "precision",
    "checkpoints averaged": "averaged_checkpoints",
    "versions": "versions",
    "commit": "commit",
}


def label(name: str) -> str:
    """The name of a setting in the table: Table 3's symbol if it has one; options keep theirs."""
    if is_option(name):
        return name
    return COLUMNS.get(name, name.replace("_", " "))


def setting(name: str, value: Value) -> str:
    """The value of a setting, in words."""
    if isinstance(value, int) and name == "max_steps":
        return formats.steps(value)
    if name in OPTIONS_OF:
        return class_name(str(value)) if value else "the paper's"
    if isinstance(value, float):
        return str(float(f"{value:.4g}"))
    return "none" if value is None else str(value)


def cost_grid(table: TableNumbers) -> Grid:
    """The cost of each row, as means over its runs."""
    of_paper = "with 40,960 rows"
    heads = ("row", "seeds", "parameters (M)", of_paper, "FLOPs", "tokens/s", "training")
    lines: list[list[str]] = []
    for row in table.rows:
        if row.is_published:
            continue
        results, means = row.results, row.means
        costs = [formats.MISSING] * 5
        if results:
            costs = [
                formats.millions(results[0].parameters),
                formats.millions(results[0].parameters_paper_vocab),
                formats.flops(means["flops"].mean),
                formats.count(means["tokens_per_second"].mean),
                formats.duration(means["train_seconds"].mean),
            ]
        lines.append([row.name, f"{len(results)}/{len(row.seeds)}", *costs])
    shown = [*Grid.of(heads, lines).columns]
    if table.plan.decoding_speed:
        speeds = [
            row.means.get("sentences_per_second") for row in table.rows if not row.is_published
        ]
        cells = [formats.number(speed and speed.mean, 1) for speed in speeds]
        shown.append(Column("sentences/s", cells))
    if not table.plan.is_compared:
        shown = [column for column in shown if column.name != of_paper]
    return Grid(shown)


def facts(table: TableNumbers) -> Iterator[tuple[str, str]]:
    """The set-up of a table."""
    plan = table.plan
    yield "scale", f"{plan.scale}: {plan.division}"
    if not plan.is_compared:
        base, sizes = columns(plan.base), list(COLUMNS.items())[:_SIZES]
        yield "base", ", ".join(f"{title} {base[name]}" for name, title in sizes)
    yield from facts_of_base(plan.base)
    yield from facts_of_results(table.results, table.trained)
    if (times := table.step_times) is not None:
        yield "step times", f"{times.device}, {times.turns} steps of each row, {times.commit[:10]}"


def facts_of_base(base: Config) -> Iterator[tuple[str, str]]:
    """The settings of the base, most of which all runs share."""
    corpus, training, decoding = base.data.corpus, base.training, base.decoding
    yield "corpus", f"{corpus.name} ({corpus.licence})"
    yield "vocabulary", f"{base.model.vocab_size:,} word-pieces"
    yield "batch", f"{base.data.tokens_per_batch:,} source and as many target tokens"
    steps = f"{training.max_steps:,} steps, warm-up {training.warmup_steps:,}"
    yield "schedule", f"{steps}, learning-rate factor {training.learning_rate_factor:g}"
    search = f"beam {decoding.beam_size}, length penalty {decoding.length_penalty:g}"
    yield "decoding", f"{search}, average of {training.average_checkpoints} checkpoint(s)"


def facts_of_results(
    results: Sequence[Result], trained: Sequence[Result] | None = None
) -> Iterator[tuple[str, str]]:
    """Hardware, versions and totals of runs; where runs differ, it names them.

    Args:
        trained: one result for each training, if runs share trainings
    """
    trained = results if trained is None else trained
    if not results:
        return
    for name, field in _SHARED.items():
        known = results
        if field.endswith("_signature"):  # not all runs have one
            known = [result for result in results if getattr(result, field)]
        if any(getattr(result, field) not in (None, 1) for result in known):
            yield name, _tally(known, field)
    parses = [scores for scores in (results[0].parses, results[0].test_parses) if scores]
    if parses:
        baselines = " and ".join(formats.number(scores.baseline_f1, 1) for scores in parses)
        yield "F1 of right-branching trees", baselines
    finished = sorted(result.finished_at[:16].replace("T", " ") for result in results)
    yield "finished", " to ".join(dict.fromkeys([finished[0], finished[-1]])) + " UTC"
    yield "total training time", formats.duration(sum(result.train_seconds for result in trained))
    arithmetic = f"{sum(result.flops for result in trained):.1e}".replace("e+", "e")
    yield "total arithmetic", f"{arithmetic} FLOPs"


def _tally(results: Sequence[Result], field: str) -> str:
    """The value that all runs share, or each value with its runs (the commonest with a count)."""
    runs: dict[str, list[str]] = defaultdict(list)
    for result in results:
        value = getattr(result, field) or "not recorded"
        if field == "versions" and result.versions:
            versions = sorted(result.versions.items())
            value = ", ".join(f"{name} {version}" for name, version in versions)
        runs[str(value)].append(f"{result.experiment.rpartition('/')[2]}/seed-{result.seed}")
    (common, names), *others = sorted(runs.items(), key=lambda item: -len(item[1]))
    if not others:
        return common
    named = [f"{value} ({', '.join(names)})" for value, names in others]
    return "; ".join([f"{common} (runs: {len(names)})", *named])
