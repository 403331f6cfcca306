"""Sentences of a table's report, and numbers as words."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from statistics import fmean

from ablations.report.numbers import WITHIN_NOISE, RowNumbers, TableNumbers, has_same_pieces
from ablations.report.statistics import (
    MAX_SEEDS,
    Estimate,
    correlation_interval,
    dunnett,
    rank_correlation,
    required_seeds,
)
from ablations.tables.changes import COLUMNS, Value, columns
from experiments.records.result import Measure, Result
from transformer import formats
from transformer.config import Config
from transformer.training.optimizer import learning_rate
from transformer.variant import class_name

_COUNTED = {
    "agrees": "agree beyond noise",
    WITHIN_NOISE: "within noise",
    "contradicts": "contradict beyond noise",
    "none in paper": "no difference in the paper",
    "same sign": "same sign",
    "other sign": "other sign",
}
_LISTED = ("contradicts", "none in paper", "other sign")
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


def label(name: str) -> str:
    """The name of a setting in the table: Table 3's, if it has it."""
    return COLUMNS.get(name, name.replace("_", " "))


def setting(name: str, value: Value) -> str:
    """The value of a setting."""
    if isinstance(value, int) and name == "max_steps":
        return formats.steps(value)
    if name == "model":
        return class_name(str(value)) if value else "the paper's"
    if isinstance(value, float):
        return str(float(f"{value:.4g}"))
    return "none" if value is None else str(value)


def interval(value: Estimate | None, digits: int, *, signed: bool = False) -> str:
    """The 95 % interval of a mean, ``81.2 to 82.3``, or why there is none."""
    if value is None:
        return formats.MISSING
    if value.interval is None:
        return "one seed" if value.count == 1 else "not finite"
    write = formats.difference if signed else formats.number
    return " to ".join(write(end, digits) for end in value.interval)


def needed(value: Estimate) -> str:
    """About how many seeds a test needs, ``14`` or ``more than 100``."""
    count = required_seeds(value)
    return f"more than {MAX_SEEDS}" if count is None else str(count)


def flops(values: Iterable[float | None]) -> str:
    """The mean of the FLOPs that are known: ``3.3e18``; empty without any."""
    known = [value for value in values if value is not None]
    return f"{fmean(known):.2g}".replace("e+", "e") if known else ""


def verdicts(table: TableNumbers) -> Iterator[str]:
    """The rows that differ from the base and agree with the paper, by measure."""
    others = [row for row in table.rows if not row.is_base and row.results]
    if others and table.base is None:
        yield "No base was run, so there are no differences (Δ) to show."
    if not others or table.base is None or not table.base.results:
        return
    if any(score.verdict for row in others for score in row.scores.values()):
        for measure in table.measures:
            yield f"{measure.title}: {_noise(others, measure)}."
            yield from _all_together(others, table.base, table, measure)
    else:
        yield (
            "No row has two seeds in common with the base, so noise cannot be judged; "
            "run --seeds 1,2,3 adds seeds."
        )
    for measure in table.measures:
        yield from _agreements(table.rows, measure)


def _noise(rows: Sequence[RowNumbers], measure: Measure) -> str:
    verdicts = {row.name: row.scores[measure.name].verdict for row in rows}
    known = [name for name, verdict in verdicts.items() if verdict]
    if not known:
        return "noise cannot be judged"
    noise = [name for name in known if verdicts[name] == WITHIN_NOISE]
    verb = "row is" if len(known) == 1 else "rows are"
    text = f"{len(noise)} of {len(known)} {verb} within noise of the base"
    text += f" ({', '.join(noise)})" * bool(noise)
    if unknown := len(rows) - len(known):
        text += f"; for {unknown} more noise cannot be judged"
    return text


def _all_together(
    rows: Sequence[RowNumbers], base: RowNumbers, table: TableNumbers, measure: Measure
) -> Iterator[str]:
    """The rows that differ from the base with an error of 5 % over all of them together."""
    found = [(row, row.scores[measure.name].difference) for row in rows]
    pooled = [(row, x) for row, x in found if x and x.pooled_freedom]
    if len(pooled) < 2:  # which the interval of the row says, without simulation
        return
    theirs = {result.seed for result in base.results}
    seeds = tuple(frozenset(theirs & {x.seed for x in row.results}) for row, _ in pooled)
    critical = dunnett(seeds, table.pools[measure.name].freedom)
    noise = [x.name for x, y in pooled if abs(y.mean) <= critical * (y.standard_error or 0.0)]
    is_split = 0 < len(noise) < len(pooled)
    yield (
        f"{measure.title}, all rows together (Dunnett's test, 5 %: {critical:.2f} standard "
        f"errors): {len(pooled) - len(noise)} of {len(pooled)} differ from the base"
        f"{', all but ' + ', '.join(noise) if is_split else ''}."
    )


def _agreements(rows: Sequence[RowNumbers], measure: Measure) -> Iterator[str]:
    found: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        if agreement := row.scores[measure.name].agreement:
            found[agreement].append(row.name)
    counts = ", ".join(
        f"{words} {len(found[kind])}" + (f" ({', '.join(found[kind])})" if kind in _LISTED else "")
        for kind, words in _COUNTED.items()
        if kind in found
    )
    if counts:
        total = sum(map(len, found.values()))
        yield f"{measure.title}, sign of Δ compared with the paper's, {total} row(s): {counts}."


def order_of_rows(table: TableNumbers) -> str:
    """A sentence on the rank correlations with the paper; empty without a row in both."""
    known: list[str] = []
    for measure in table.measures:
        rows = (row for row in table.rows if has_same_pieces(row, measure.name))
        scores = [row.scores[measure.name] for row in rows]
        pairs = [(x.ours.mean, x.paper) for x in scores if x.ours and x.paper is not None]
        if pairs := [pair for pair in pairs if not math.isnan(pair[0])]:
            known.append(f"{measure.label} {_correlation(pairs)}")
    if not known:
        return ""
    return f"Spearman's rank correlation with the paper's rows: {', '.join(known)}."


def _correlation(pairs: Sequence[tuple[float, float]]) -> str:
    rows = "1 row" if len(pairs) == 1 else f"{len(pairs)} rows"
    value = rank_correlation(*zip(*pairs, strict=True))
    if value is None:
        return f"undefined ({rows})"
    if (ends := correlation_interval(value, len(pairs))) is not None:
        rows += f", 95 % in {' to '.join(formats.difference(end, 2) for end in ends)}"
    return f"{formats.difference(value, 2)} ({rows})"


def regime(config: Config, result: Result | None) -> list[tuple[str, float | None, float]]:
    """Numbers without units of a base that has finished, ours and the paper's.

    An experiment that keeps them keeps the regime in which the paper compared its rows. The paper's
    are those of its base: 65 M parameters, 100,000 steps of 25,000 target tokens over a corpus of
    about 130 M.
    """
    if result is None:
        return []
    training, corpus = config.training, result.corpus_target_tokens
    warm_up, steps = training.warmup_steps, training.max_steps
    peak, last = (
        learning_rate(step, config.model.d_model, training) for step in (min(warm_up, steps), steps)
    )
    epochs = corpus and result.target_tokens / corpus
    return [
        ("epochs", epochs, 19),
        ("target tokens seen per parameter", result.target_tokens / result.parameters, 38),
        ("distinct target tokens per parameter", corpus and corpus / result.parameters, 2),
        ("warm-up share of the steps", warm_up / steps, 0.04),
        ("last learning rate over its peak", peak and last / peak, 0.2),
        ("tokens of a batch over those of the corpus", epochs and epochs / result.steps, 0.0002),
    ]


def regime_warning(numbers: Sequence[tuple[str, float | None, float]]) -> str:
    """A sentence that names the numbers far from the paper's; empty if there are none."""
    far = [
        f"{name} {ours:.3g} (paper {paper:g})"
        for name, ours, paper in numbers
        if ours and not 1 / _FAR <= ours / paper <= _FAR
    ]
    named = f"More than a factor of {_FAR} from the paper's: {', '.join(far)}. "
    return f"{named}Rows may differ from the paper's for this reason." if far else ""


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
    if parses := [x for x in (results[0].parses, results[0].test_parses) if x]:
        baselines = " and ".join(formats.number(x.baseline_f1, 1) for x in parses)
        yield "F1 of right-branching trees", baselines
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
            parts = (f"{name} {x}" for name, x in sorted(result.versions.items()))
            value = ", ".join(parts) or value
        runs[str(value)].append(f"{result.experiment.rpartition('/')[2]}/seed-{result.seed}")
    (common, names), *others = sorted(runs.items(), key=lambda item: -len(item[1]))
    if not others:
        return common
    named = [f"{value} ({', '.join(names)})" for value, names in others]
    return "; ".join([f"{common} (runs: {len(names)})", *named])
