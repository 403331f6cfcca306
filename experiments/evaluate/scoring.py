"""Score a trained run."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from experiments.devices import device_name, explain_out_of_memory, nominal_peak, peak_memory
from experiments.display import Display
from experiments.evaluate.exported import load_translator
from experiments.evaluate.own_measures import own_scores
from experiments.evaluate.trained import (
    TrainedModel,
    choose_checkpoints,
    load_average,
    prepared_text,
    text_of_split,
)
from experiments.evaluate.translator import Text, Translator
from experiments.records.data import recorded_data
from experiments.records.experiment import DecodingOptions, Experiment
from experiments.records.outputs import Sample, hypotheses_path, samples_path, to_average
from experiments.records.progress import Progress, RunState
from experiments.records.provenance import commit, versions
from experiments.records.result import Averaged, Result
from experiments.records.score_lines import score_line, signature_lines
from transformer.config import to_dict
from transformer.data.prepared import PreparedCorpus
from transformer.data.text import read_aligned
from transformer.errors import InputError
from transformer.evaluation.bleu import sentence_chrf
from transformer.evaluation.counts import count_parameters, training_flops
from transformer.evaluation.perplexity import unigram_perplexity
from transformer.files import check_output, check_plain, write_json, write_output
from transformer.progress import show_progress
from transformer.training.precision import effective_precision

if TYPE_CHECKING:  # a translation needs no Lightning, whose import takes seconds
    from lightning.pytorch import Trainer

    from experiments.callbacks.metrics import Clock
    from transformer.training.module import TransformerModule

# Rows of the embedding with which the parameters add up to the paper's column.
_PAPER_VOCAB_SIZE = 40_960
_FEWER_AT_ONCE = "run fewer things on the device at once; training is done and is not lost"
# How many of the best, and of the worst, translations are kept with their sources.
_SAMPLES = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class Scores:
    """The translations, or parses, of a text with their scores by the fields of a
    :class:`Result`, the signatures of both kinds of BLEU and of chrF, and the speed of decoding:
    None for an empty text.
    """

    translations: list[str]
    by_field: dict[str, Any]
    signatures: dict[str, str]
    sentences_per_second: float | None


@explain_out_of_memory(lambda: "while scoring", _FEWER_AT_ONCE)
def score_run(
    experiment: Experiment,
    directory: Path,
    corpus: PreparedCorpus,
    trainer: Trainer,
    clock: Clock,
    display: Display,
) -> Result:
    """Score the checkpoints of a trained run, and write its translations."""
    device, vocabulary = trainer.strategy.root_device, corpus.vocabulary()

    def score_shown(trained: TrainedModel, text: Text, hypotheses_file: Path | None) -> Scores:
        lines = len(text.sources)

        def show(done: int) -> None:
            display.update(Progress(stage=RunState.EVALUATE, step=done, max_steps=lines))

        display.start(RunState.EVALUATE, lines)
        return score(trained, text, hypotheses_file=hypotheses_file, on_progress=show)

    checkpoints = choose_checkpoints(experiment, directory)
    trained = load_average(experiment, checkpoints, vocabulary, device)
    texts = {x: prepared_text(corpus, x) for x in experiment.splits if corpus.has(x)}
    scores: dict[str, Scores] = {}
    for split, text in texts.items():
        path = hypotheses_path(directory, split)
        check_plain(path)
        scores[split] = score_shown(trained, text, path)
        _write_samples(samples_path(directory, split), text, scores[split].translations)
    averaged, count = None, experiment.config.training.also_average
    others = checkpoints if count is None else to_average(directory, count)
    if others != checkpoints:
        trained = load_average(experiment, others, vocabulary, device)
        valid = score_shown(trained, texts["valid"], None)
        averaged = Averaged(checkpoints=len(others), **valid.by_field)
    result = _result(experiment, corpus, trainer, clock, scores, len(checkpoints), averaged)
    own = own_scores(experiment.own_measures, texts["valid"], scores["valid"].translations)
    return replace(result, own_scores=own)


def result_of_diverged(
    experiment: Experiment, corpus: PreparedCorpus, trainer: Trainer, clock: Clock, step: int
) -> Result:
    """The result of a training that ended because the gradient at ``step`` was infinite or NaN.

    Its weights are not scored: the last checkpoint is from before it diverged.
    """
    infinite = {"perplexity": math.inf, "perplexity_per_char": math.inf}
    valid = Scores(translations=[], by_field=infinite, signatures={}, sentences_per_second=None)
    checkpoints = experiment.config.training.average_checkpoints
    return _result(experiment, corpus, trainer, clock, {"valid": valid}, checkpoints, None, step)


def _result(
    experiment: Experiment,
    corpus: PreparedCorpus,
    trainer: Trainer,
    clock: Clock,
    scores: dict[str, Scores],
    checkpoints: int,
    averaged: Averaged | None,
    diverged_at: int | None = None,
) -> Result:
    config, device = experiment.config, trainer.strategy.root_device
    train = corpus.store("train")
    precision = effective_precision(config, device)
    peak = nominal_peak(device_name(), precision)
    device_seconds = clock.seconds * trainer.world_size
    test = scores["test"].by_field if "test" in scores else {}
    return Result(
        experiment=experiment.name,
        seed=config.training.seed,
        averaged=averaged,
        averaged_checkpoints=checkpoints,
        parameters=count_parameters(config.model),
        parameters_paper_vocab=count_parameters(config.model, _PAPER_VOCAB_SIZE),
        steps=diverged_at or trainer.global_step,
        diverged_at=diverged_at,
        source_tokens=clock.source_tokens,
        target_tokens=clock.target_tokens,
        flops=training_flops(config.model, clock.source_tokens, clock.target_tokens),
        flops_nominal=None if peak is None else device_seconds * peak,
        train_seconds=clock.seconds,
        tokens_per_second=clock.target_tokens / clock.seconds,
        device=device_name(),
        devices=trainer.world_size,
        precision=precision,
        step_kind=cast("TransformerModule", trainer.lightning_module).step_kind,
        peak_memory_bytes=peak_memory(device),
        data_digest=corpus.manifest.digest,
        corpus_target_tokens=int(train.lengths[:, 1].sum()),
        unigram_perplexity=unigram_perplexity(
            train, corpus.store("valid"), config.model.vocab_size
        ),
        versions=versions(),
        commit=commit(),
        sentences_per_second=scores["valid"].sentences_per_second,
        finished_at=datetime.now(UTC).isoformat(timespec="seconds"),
        **scores["valid"].by_field,
        **scores["valid"].signatures,
        **{f"test_{name}": value for name, value in test.items()},
    )


def score(
    trained: Translator,
    text: Text,
    *,
    hypotheses_file: Path | None,
    on_progress: Callable[[int], object],
) -> Scores:
    """Translate or parse ``text``, and score that against its references.

    Args:
        hypotheses_file: where the translations are written, if at all
    """
    start = time.perf_counter()
    hypotheses = trained.decode(text.sources, on_progress=on_progress)
    speed = len(hypotheses) / (time.perf_counter() - start) if hypotheses else None
    if hypotheses_file is not None:
        write_output(hypotheses_file, "".join(f"{line}\n" for line in hypotheses))
    found = trained.perplexity(text)
    scores, signatures = trained.score(text, hypotheses)
    scores |= {"perplexity": found.per_token, "perplexity_per_char": found.per_char}
    return Scores(
        translations=hypotheses, by_field=scores, signatures=signatures, sentences_per_second=speed
    )


def _write_samples(path: Path, text: Text, translations: list[str]) -> None:
    """Write the best and the worst translations of ``text`` by chrF, best first."""
    chrf = sentence_chrf(translations, text.references, text.more)
    order = sorted(range(len(chrf)), key=lambda line: -chrf[line])
    if len(order) > 2 * _SAMPLES:
        order = order[:_SAMPLES] + order[-_SAMPLES:]
    found = (
        Sample(
            chrf=round(chrf[line], 1),
            source=text.sources[line],
            reference=text.references[line],
            translation=translations[line],
        )
        for line in order
    )
    write_json(path, {"samples": [to_dict(sample) for sample in found]})


def evaluate_run(
    directory: Path,
    options: DecodingOptions,
    split: str,
    source: Path | None,
    reference: Path | None,
    output: Path | None,
) -> None:
    """Print the scores of a run on a split, or on the lines of two files."""
    if (source is None) != (reference is None):
        raise InputError("--source and --reference belong together")
    if output is not None:
        check_output(output)
    trained = load_translator(directory, options)
    if source is not None and reference is not None:
        text = Text(*read_aligned(source, reference))
    else:
        text = text_of_split(trained.experiment, split, recorded_data(directory))
    with show_progress("evaluate", len(text.sources)) as shown:
        scores = score(trained, text, hypotheses_file=output, on_progress=shown)
    found = Averaged(checkpoints=1, **scores.by_field)  # whose count is not printed
    line = score_line(split if source is None else "text", found)
    print(f"{line}, per character {found.perplexity_per_char:.3f}")
    signatures = signature_lines(scores.signatures)
    print(*signatures, f"{len(text.sources):,} lines, {trained.search}", sep="\n")
