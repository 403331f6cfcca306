"""The set-up of a report, and its scale's dimensionless numbers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ablations.report.numbers import TableNumbers
from ablations.tables.changes import COLUMNS, columns
from experiments.records.result import Result
from transformer import formats
from transformer.config import Config
from transformer.training.optimizer import learning_rate

_FAR = 3
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


@dataclass(frozen=True, slots=True)
class RegimeNumber:
    """A dimensionless number, the paper's and ours; None until the base has finished.

    An experiment that keeps these numbers keeps the regime in which the paper compared its rows.
    """

    name: str
    paper: float
    ours: float | None

    @property
    def text(self) -> str:
        """Ours as text."""
        return formats.MISSING if self.ours is None else f"{self.ours:.3g}"


def regime(config: Config, result: Result | None) -> list[RegimeNumber]:
    """The numbers of a base with that configuration and, once it has finished, that result.

    The paper's are those of its base: 65 M parameters, 100,000 steps of 25,000 target tokens over
    a corpus of about 130 M.
    """
    training = config.training
    warm_up, steps = training.warmup_steps, training.max_steps
    peak, last = (
        learning_rate(step, config.model.d_model, training) for step in (min(warm_up, steps), steps)
    )
    epochs = seen = distinct = batch = None
    if result is not None:
        seen = result.target_tokens / result.parameters
        if corpus := result.corpus_target_tokens:
            epochs = result.target_tokens / corpus
            distinct = corpus / result.parameters
            batch = epochs / result.steps
    return [
        RegimeNumber("epochs", 19, epochs),
        RegimeNumber("target tokens seen per parameter", 38, seen),
        RegimeNumber("distinct target tokens per parameter", 2, distinct),
        RegimeNumber("warm-up share of the steps", 0.04, warm_up / steps),
        RegimeNumber("last learning rate over its peak", 0.2, last / peak),
        RegimeNumber("tokens of a batch over those of the corpus", 0.0002, batch),
    ]


def regime_warning(numbers: Sequence[RegimeNumber]) -> str:
    """A sentence that names the numbers far from the paper's; empty if there are none."""
    far = [
        f"{number.name} {number.text} (paper {number.paper:g})"
        for number in numbers
        if number.ours is not None and not 1 / _FAR <= number.ours / number.paper <= _FAR
    ]
    if not far:
        return ""
    return (
        f"More than a factor of {_FAR} from the paper's: {', '.join(far)}. Rows may differ from "
        "the paper's for this reason."
    )
