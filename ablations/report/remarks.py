"""What a report says beside its tables: how to read them, and what was run on what."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

from ablations.report.evidence import NOISE
from ablations.report.pooled import Pool
from ablations.report.summary import MEASURES, Summary
from experiments.run.results import Result
from transformer import formats
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
    if any(len(row.results) > 1 for row in summary.rows):
        yield (
            "± is the standard deviation over seeds, and 95 % are the bounds of the mean over "
            "seeds by Student's t. Where the bounds of Δ hold 0 the row is within noise of the "
            f"base, marked {NOISE}. Of twenty rows that do not differ, about one will seem to by "
            "chance."
        )
        yield from (_of_interval(summary.pools[name], MEASURES[name]) for name in summary.pools)
        yield (
            "Seeds to tell: about how many seeds a t test (two-sided 5 %, power 80 %) needs to "
            "find the difference, if it and its spread are as seen here; from few seeds a rough "
            "guess."
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
        "Parameters are the model's own, and those with the embedding table of 40,960 rows that "
        "fits the paper's column (its big fits about 36,000)."
    )


def _of_interval(pool: Pool, label: str) -> str:
    """How the bounds of Δ were found, and why so."""
    p = f"Bartlett's test of equal variances: p = {pool.p_equal:.2g}"
    if not pool.is_usable:
        return (
            f"{label}: the bounds of Δ are by Student's t for each row alone, paired by seed; "
            f"rows differ too much in spread to pool it ({p})."
        )
    return (
        f"{label}: the bounds of Δ are by Student's t with the spread pooled over all rows: "
        f"{formats.number(pool.deviation, 4)} after the effects of row and seed, {pool.freedom} "
        f"degrees of freedom ({p})."
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
    yield "BLEU", _tally(results, lambda result: result.bleu_signature)
    if tokenised := [result for result in results if result.tokenised_bleu_signature]:
        yield "BLEU tokenised", _tally(tokenised, lambda x: x.tokenised_bleu_signature or "")
    if any(result.data_digest for result in results):
        yield "data", _tally(results, lambda result: result.data_digest or "not noted")
    yield "device", _tally(results, lambda result: result.device)
    yield "precision", _tally(results, lambda result: result.precision)
    if any(result.averaged_checkpoints > 1 for result in results):
        yield "checkpoints averaged", _tally(results, lambda x: str(x.averaged_checkpoints))
    yield "versions", _tally(results, _versions)
    yield "commit", _tally(results, lambda result: result.commit)
    finished = sorted(result.finished_at[:16].replace("T", " ") for result in results)
    yield "finished", " to ".join(dict.fromkeys([finished[0], finished[-1]])) + " UTC"
    yield "training in all", formats.duration(sum(result.train_seconds for result in results))
    flops = f"{sum(result.flops for result in results):.1e}".replace("e+", "e")
    yield "arithmetic in all", f"{flops} FLOPs"


def _versions(result: Result) -> str:
    return ", ".join(f"{name} {version}" for name, version in sorted(result.versions.items()))


def _tally(results: Sequence[Result], of: Callable[[Result], str]) -> str:
    """The one value that all share, or each with its runs, those of the commonest counted only."""
    runs: dict[str, list[str]] = defaultdict(list)
    for result in results:
        runs[of(result)].append(f"{result.experiment.rpartition('/')[2]}/seed-{result.seed}")
    (common, names), *others = sorted(runs.items(), key=lambda item: -len(item[1]))
    if not others:
        return common
    named = [f"{value} ({', '.join(names)})" for value, names in others]
    return "; ".join([f"{common} (runs: {len(names)})", *named])
