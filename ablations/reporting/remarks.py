"""What a report says beside its tables: how to read them, and what was run on what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from ablations import formats
from ablations.reporting.evidence import NOISE
from ablations.reporting.summary import Summary
from experiments.results import Result
from transformer.config import Config


def notes(summary: Summary) -> Iterator[str]:
    """What a reader must know to read the figures aright."""
    plan = summary.plan
    yield (
        "A blank is the base's value. Δ is the row less the base over the seeds that both have; "
        "lower perplexity is better."
    )
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
            f"{' and '.join(spreads)}."
        )
        yield (
            "95 %: the bounds of the mean over seeds by Student's t, and of Δ paired by seed. "
            f"Where those of Δ hold 0 the row is within noise of the base, marked {NOISE}. Of "
            "twenty rows that do not differ, about one will seem to by chance."
        )
        yield (
            "Seeds to tell: about how many seeds a paired t test (two-sided 5 %, power 80 %) needs "
            "to find the difference, if it and its spread are as seen here; from few seeds a "
            "rough guess."
        )
    if any(len(row.results) == 1 for row in summary.rows):
        yield (
            "A figure without ± is of one seed. Differences within the noise of a seed cannot be "
            "told apart: at the paper's size that is about 0.3 to 0.5 BLEU, at a small scale more; "
            "perplexity separates rows better."
        )
    correlations = (summary.perplexity_correlation(), summary.bleu_correlation())
    if any(correlation.interval for correlation in correlations):
        yield (
            "The bounds of the rank correlation are by Fisher's z, with the rows as a sample; the "
            "noise of seeds is not in them."
        )
    if any(row.tokenised_bleu is not None for row in summary.rows):
        yield (
            "BLEU is sacreBLEU's. The paper's own is of tokens, as in the column BLEU tokenised: "
            "quotes made plain, split by Moses' rules, German compounds into their parts."
        )
    if counts := {result.averaged.checkpoints for result in summary.results if result.averaged}:
        yield (
            "Averaged figures are of the mean of the last "
            f"{' or '.join(map(str, sorted(counts)))} checkpoints; the paper's table is without."
        )
    yield (
        "Parameters are in millions: the model's own, and with the embedding table of 40,960 "
        "rows that fits the paper's column (its big fits about 36,000)."
    )


def facts(summary: Summary) -> Iterator[tuple[str, str]]:
    """What was run on what, each with its name."""
    plan = summary.plan
    yield (
        "scale",
        f"{plan.scale}: widths divided by {plan.divide_widths}, N by {plan.divide_layers}",
    )
    yield from facts_of_base(plan.base)
    yield from facts_of_results(summary.results)


def facts_of_base(base: Config) -> Iterator[tuple[str, str]]:
    """What all runs share, or vary."""
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
    """What runs were carried out with; where they differ, how many by which."""
    if not results:
        return
    yield "BLEU", _tally(result.bleu_signature for result in results)
    tokenised = [x.tokenised_bleu_signature for x in results if x.tokenised_bleu_signature]
    if tokenised:
        yield "BLEU tokenised", _tally(tokenised)
    if any(result.data_digest for result in results):
        yield "data", _tally(result.data_digest or "not noted" for result in results)
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
