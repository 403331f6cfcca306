"""The words of a report: how to read its figures, the set-up, the scale and the paper's."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ablations.report.pooling import Pool
from ablations.report.summary import Summary
from ablations.report.verdicts import NOISE
from ablations.tables.changes import COLUMNS, columns
from experiments.run.measures import MEASURES
from experiments.run.results import Result
from transformer import formats
from transformer.config import Config
from transformer.training.optimizer import learning_rate

_FAR = 3
_SIZES = 9  # columns of Table 3 that describe the model


def notes(summary: Summary) -> Iterator[str]:
    """How to read the figures of a table."""
    plan = summary.plan
    yield (
        "A blank is the base's value. Δ is the row less the base over the seeds that both have; "
        "lower perplexity is better."
    )
    if max(plan.divide_widths, plan.divide_layers, plan.divide_dropout) > 1:
        yield (
            f"Columns show what was run: the paper's {plan.division}. Rows keep the names of the "
            "paper's values; compare the order and the signs of the differences with the paper's, "
            "not their size."
            if plan.is_compared
            else f"Columns show what was run: the table's values with {plan.division}."
        )
    if any(len(row.results) > 1 for row in summary.rows):
        yield (
            "± is the standard deviation over seeds, and 95 % is the confidence interval of the "
            "mean over seeds by Student's t, cut off at the ends of the score's scale. If the "
            f"interval of Δ contains 0, the row is within noise of the base, marked {NOISE}. Of "
            "twenty rows that do not differ, about one will seem to by chance."
        )
        yield from (
            _of_interval(summary.pools[name], MEASURES[name].title) for name in summary.pools
        )
        if any(pool.is_usable for pool in summary.pools.values()):
            yield (
                "With few seeds the test seldom notices one row that spreads more than the others. "
                "In simulated tables the pooled interval of a row with two or three times their "
                "spread held the true Δ in 81 to 89 % instead of 95 %; where the base spread so, "
                "the intervals of all rows did, and Dunnett's test erred in up to 21 % of tables "
                "instead of 5 %."
            )
        yield (
            "Seeds needed: about how many seeds a t test (two-sided 5 %, power 80 %) needs to "
            "show the difference, if it and its spread are as observed; from few seeds this is a "
            "rough guess."
        )
    if any(len(row.results) == 1 for row in summary.rows):
        at_paper = "at the paper's size that is about 0.3 to 0.5 BLEU, at a small scale more; "
        known = plan.is_compared and "bleu" in plan.measures
        yield (
            "A figure without ± is of one seed. Differences within the noise of a seed cannot be "
            f"told apart: {at_paper * known}perplexity separates rows better."
        )
    if any(summary.correlation(name).interval for name in plan.measures):
        yield (
            "The interval of the rank correlation is by Fisher's z, the rows taken as a sample; it "
            "does not include the noise of seeds."
        )
    if any("tokenised_bleu" in row.scores for row in summary.rows):
        paper = "The paper's own is computed on tokens, as in the column BLEU tokenised"
        own = "The column BLEU tokenised is computed on tokens"
        yield (
            f"BLEU is sacreBLEU's. {paper if plan.is_compared else own}: plain quotes, Moses' "
            "tokenisation, German compounds split."
        )
    if any(result.parses for result in summary.results):
        yield "F1 is labelled, as EVALB counts it, with the references' punctuation."
    not_paper = ", which the paper's table does not use"
    if counts := {result.averaged.checkpoints for result in summary.results if result.averaged}:
        yield (
            "Averaged figures are those of the mean of the last "
            f"{' or '.join(map(str, sorted(counts)))} checkpoints"
            f"{not_paper * plan.is_compared}."
        )
    if plan.is_compared:
        yield (
            "Parameters are the model's own, and those it has with the embedding table of 40,960 "
            "rows that fits the paper's column (its big model fits about 36,000)."
        )


def _of_interval(pool: Pool, label: str) -> str:
    p = f"a test of equal variances, simulated for these rows and seeds: p = {pool.p_equal:.2g}"
    if not pool.is_usable:
        return (
            f"{label}: the interval of Δ is by Student's t for each row alone, paired by seed; "
            f"rows differ too much in spread to pool it ({p})."
        )
    return (
        f"{label}: the interval of Δ is by Student's t with the spread pooled over all rows: "
        f"{formats.number(pool.deviation, 4)} after the effects of row and seed, {pool.freedom} "
        f"degrees of freedom ({p})."
    )


def facts(summary: Summary) -> Iterator[tuple[str, str]]:
    """The set-up of a table, as names and values."""
    plan = summary.plan
    yield "scale", f"{plan.scale}: {plan.division}"
    if not plan.is_compared:
        base = columns(plan.base)
        sizes = list(COLUMNS.items())[:_SIZES]
        yield "base", ", ".join(f"{title} {base[name]}" for name, title in sizes)
    yield from facts_of_base(plan.base)
    yield from facts_of_results(summary.results)


def facts_of_base(base: Config) -> Iterator[tuple[str, str]]:
    """The settings of the base, most of which all runs share."""
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


def facts_of_results(results: Sequence[Result]) -> Iterator[tuple[str, str]]:
    """Hardware, versions and totals of runs; where the runs differ, which of them do."""
    if not results:
        return
    if signed := [result for result in results if result.bleu_signature]:
        yield "BLEU", _tally(signed, lambda result: result.bleu_signature or "")
    if tokenised := [result for result in results if result.tokenised_bleu_signature]:
        yield "BLEU tokenised", _tally(tokenised, lambda x: x.tokenised_bleu_signature or "")
    if any(result.data_digest for result in results):
        yield "data", _tally(results, lambda result: result.data_digest or "not recorded")
    yield "device", _tally(results, lambda result: result.device)
    yield "precision", _tally(results, lambda result: result.precision)
    if any(result.averaged_checkpoints > 1 for result in results):
        yield "checkpoints averaged", _tally(results, lambda x: str(x.averaged_checkpoints))
    yield (
        "versions",
        _tally(results, lambda x: ", ".join(f"{k} {v}" for k, v in sorted(x.versions.items()))),
    )
    yield "commit", _tally(results, lambda result: result.commit)
    finished = sorted(result.finished_at[:16].replace("T", " ") for result in results)
    yield "finished", " to ".join(dict.fromkeys([finished[0], finished[-1]])) + " UTC"
    yield "total training time", formats.duration(sum(x.train_seconds for x in results))
    flops = f"{sum(result.flops for result in results):.1e}".replace("e+", "e")
    yield "total arithmetic", f"{flops} FLOPs"


def _tally(results: Sequence[Result], of: Callable[[Result], str]) -> str:
    """The value that all share, or each value with its runs, those of the commonest counted."""
    runs: dict[str, list[str]] = defaultdict(list)
    for result in results:
        runs[of(result)].append(f"{result.experiment.rpartition('/')[2]}/seed-{result.seed}")
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
        """Whether it differs from the paper's by more than a factor of three."""
        return self.ours is not None and not 1 / _FAR <= self.ours / self.paper <= _FAR

    @property
    def cells(self) -> tuple[str, str, str]:
        """Name, ours and the paper's as text."""
        ours = formats.MISSING if self.ours is None else f"{self.ours:.3g}"
        return self.name, ours, f"{self.paper:g}"


def regime(config: Config, result: Result | None) -> tuple[RegimeNumber, ...]:
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
    return (
        RegimeNumber("epochs", epochs, 19),
        RegimeNumber("target tokens seen per parameter", seen, 38),
        RegimeNumber("distinct target tokens per parameter", distinct, 2.0),
        RegimeNumber(
            "warm-up share of the steps", training.warmup_steps / training.max_steps, 0.04
        ),
        RegimeNumber("last learning rate over its peak", last / peak, 0.2),
        RegimeNumber("tokens of a batch over those of the corpus", batch, 0.0002),
    )


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
