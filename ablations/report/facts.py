"""The set-up of a table or a search, as names and values."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from ablations.report.numbers import TableNumbers
from ablations.tables.changes import COLUMNS, columns
from experiments.run.results import Result
from transformer import formats
from transformer.config import Config

_SIZES = 9  # columns of Table 3 that describe the model
_SHARED = {
    "BLEU": "bleu_signature",
    "BLEU tokenised": "tokenised_bleu_signature",
    "data": "data_digest",
    "device": "device",
    "precision": "precision",
    "checkpoints averaged": "averaged_checkpoints",
    "versions": "versions",
    "commit": "commit",
}


def facts(table: TableNumbers) -> Iterator[tuple[str, str]]:
    """The set-up of a table."""
    plan = table.plan
    yield "scale", f"{plan.scale}: {plan.division}"
    if not plan.is_compared:
        base, sizes = columns(plan.base), list(COLUMNS.items())[:_SIZES]
        yield "base", ", ".join(f"{title} {base[name]}" for name, title in sizes)
    yield from facts_of_base(plan.base)
    yield from facts_of_results(table.results)


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


def facts_of_results(results: Sequence[Result]) -> Iterator[tuple[str, str]]:
    """Hardware, versions and totals of runs; where the runs differ, which of them do."""
    if not results:
        return
    for name, field in _SHARED.items():
        known = [x for x in results if getattr(x, field) or not name.startswith("BLEU")]
        if any(getattr(result, field) not in (None, 1) for result in known):
            yield name, _tally(known, field)
    finished = sorted(result.finished_at[:16].replace("T", " ") for result in results)
    yield "finished", " to ".join(dict.fromkeys([finished[0], finished[-1]])) + " UTC"
    yield "total training time", formats.duration(sum(x.train_seconds for x in results))
    flops = f"{sum(result.flops for result in results):.1e}".replace("e+", "e")
    yield "total arithmetic", f"{flops} FLOPs"


def _tally(results: Sequence[Result], field: str) -> str:
    """The value that all share, or each value with its runs, those of the commonest counted."""
    runs: dict[str, list[str]] = defaultdict(list)
    for result in results:
        value = getattr(result, field) or "not recorded"
        if field == "versions":
            value = ", ".join(f"{name} {x}" for name, x in sorted(result.versions.items()))
        runs[str(value)].append(f"{result.experiment.rpartition('/')[2]}/seed-{result.seed}")
    (common, names), *others = sorted(runs.items(), key=lambda item: -len(item[1]))
    if not others:
        return common
    named = [f"{value} ({', '.join(names)})" for value, names in others]
    return "; ".join([f"{common} (runs: {len(names)})", *named])
