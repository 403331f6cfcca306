"""The set-up of a report, and the scale's dimensionless numbers next to the paper's."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ablations.report.numbers import TableNumbers
from ablations.tables.changes import COLUMNS, columns
from experiments.run.results import Result
from transformer import formats
from transformer.config import Config
from transformer.training.optimizer import learning_rate

_FAR = 3
_SIZES = 9  # columns of Table 3 that describe the model


def facts(table: TableNumbers) -> Iterator[tuple[str, str]]:
    """The set-up of a table, as names and values."""
    plan = table.plan
    yield "scale", f"{plan.scale}: {plan.division}"
    if not plan.is_compared:
        base = columns(plan.base)
        sizes = list(COLUMNS.items())[:_SIZES]
        yield "base", ", ".join(f"{title} {base[name]}" for name, title in sizes)
    yield from facts_of_base(plan.base)
    yield from facts_of_results(table.results)


def facts_of_base(base: Config) -> Iterator[tuple[str, str]]:
    """The settings of the base, most of which all runs share."""
    corpus, training, decoding = base.data.corpus, base.training, base.decoding
    yield "corpus", f"{corpus.name} ({corpus.licence})"
    yield "vocabulary", f"{base.model.vocab_size:,} word-pieces"
    yield "batch", f"{base.data.tokens_per_batch:,} source and as many target tokens"
    yield (
        "schedule",
        f"{training.max_steps:,} steps, warm-up {training.warmup_steps:,}, "
        f"learning-rate factor {training.learning_rate_factor:g}",
    )
    yield (
        "decoding",
        f"beam {decoding.beam_size}, length penalty {decoding.length_penalty:g}, "
        f"average of {training.average_checkpoints} checkpoint(s)",
    )


def facts_of_results(results: Sequence[Result]) -> Iterator[tuple[str, str]]:
    """Hardware, versions and totals of runs; where the runs differ, which of them do."""
    if not results:
        return
    if signed := [result for result in results if result.bleu_signature]:
        yield "BLEU", _tally(signed, lambda result: result.bleu_signature)
    if tokenised := [result for result in results if result.tokenised_bleu_signature]:
        yield "BLEU tokenised", _tally(tokenised, lambda result: result.tokenised_bleu_signature)
    if any(result.data_digest for result in results):
        yield "data", _tally(results, lambda result: result.data_digest or "not recorded")
    yield "device", _tally(results, lambda result: result.device)
    yield "precision", _tally(results, lambda result: result.precision)
    if any(result.averaged_checkpoints > 1 for result in results):
        yield "checkpoints averaged", _tally(results, lambda result: result.averaged_checkpoints)
    yield "versions", _tally(results, _versions)
    yield "commit", _tally(results, lambda result: result.commit)
    finished = sorted(result.finished_at[:16].replace("T", " ") for result in results)
    yield "finished", " to ".join(dict.fromkeys([finished[0], finished[-1]])) + " UTC"
    yield "total training time", formats.duration(sum(x.train_seconds for x in results))
    flops = f"{sum(result.flops for result in results):.1e}".replace("e+", "e")
    yield "total arithmetic", f"{flops} FLOPs"


def _versions(result: Result) -> str:
    return ", ".join(f"{name} {version}" for name, version in sorted(result.versions.items()))


def _tally(results: Sequence[Result], of: Callable[[Result], object]) -> str:
    """The value that all share, or each value with its runs, those of the commonest counted."""
    runs: dict[str, list[str]] = defaultdict(list)
    for result in results:
        runs[str(of(result))].append(f"{result.experiment.rpartition('/')[2]}/seed-{result.seed}")
    (common, names), *others = sorted(runs.items(), key=lambda item: -len(item[1]))
    if not others:
        return common
    named = [f"{value} ({', '.join(names)})" for value, names in others]
    return "; ".join([f"{common} (runs: {len(names)})", *named])


@dataclass(frozen=True, slots=True)
class RegimeNumber:
    """A dimensionless number of an experiment; ``ours`` is None until the base has finished.

    An experiment that keeps these numbers keeps the regime in which the paper compared its rows.
    """

    name: str
    ours: float | None
    paper: float

    @property
    def is_far(self) -> bool:
        """True if it differs from the paper's by more than a factor of three."""
        return self.ours is not None and not 1 / _FAR <= self.ours / self.paper <= _FAR

    @property
    def cells(self) -> tuple[str, str, str]:
        """Name, ours and the paper's as text."""
        ours = formats.MISSING if self.ours is None else f"{self.ours:.3g}"
        return self.name, ours, f"{self.paper:g}"


def regime(config: Config, result: Result | None) -> list[RegimeNumber]:
    """The numbers of a base with that configuration and, once it has finished, that result.

    The paper's are those of its base: 65 M parameters, 100,000 steps of 25,000 target tokens over
    a corpus of about 130 M.
    """
    training = config.training
    peak, last = (
        learning_rate(step, config.model.d_model, training)
        for step in (min(training.warmup_steps, training.max_steps), training.max_steps)
    )
    epochs = seen = distinct = batch = None
    if result is not None:
        seen = result.target_tokens / result.parameters
        if corpus := result.corpus_target_tokens:
            epochs = result.target_tokens / corpus
            distinct = corpus / result.parameters
            batch = epochs / result.steps
    warm_up = training.warmup_steps / training.max_steps
    return [
        RegimeNumber("epochs", epochs, 19),
        RegimeNumber("target tokens seen per parameter", seen, 38),
        RegimeNumber("distinct target tokens per parameter", distinct, 2.0),
        RegimeNumber("warm-up share of the steps", warm_up, 0.04),
        RegimeNumber("last learning rate over its peak", last / peak, 0.2),
        RegimeNumber("tokens of a batch over those of the corpus", batch, 0.0002),
    ]


def regime_warning(numbers: Sequence[RegimeNumber]) -> str:
    """A sentence that names the numbers far from the paper's; empty if there are none."""
    far = [number.cells for number in numbers if number.is_far]
    if not far:
        return ""
    named = ", ".join(f"{name} {ours} (paper {paper})" for name, ours, paper in far)
    return (
        f"More than a factor of {_FAR} from the paper's: {named}. Rows may differ from the "
        "paper's for this reason."
    )
