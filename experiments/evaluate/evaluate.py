"""Scoring and using a trained run."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from experiments.callbacks.display import Display
from experiments.evaluate.engine import open_engine
from experiments.evaluate.scoring import score
from experiments.evaluate.weights import load_trained
from experiments.run.data import noted_data
from experiments.run.experiment import Experiment, load_experiment
from transformer.config import DecodingConfig, override
from transformer.data.fetching.testsets import sacrebleu_text
from transformer.data.preparation.prepare import prepare
from transformer.data.prepared import Manifest
from transformer.data.text import decode_line, read_aligned
from transformer.errors import InputError
from transformer.evaluation.perplexity import translate

Text = tuple[list[str], list[str]]

# Lines of standard input that are translated at a time.
_LINES_AT_ONCE = 512


def evaluate_run(
    directory: Path,
    *,
    split: str,
    source: Path | None,
    reference: Path | None,
    average: int | None,
    beam_size: int | None,
    length_penalty: float | None,
    output: Path | None,
    engine: str = "torch",
) -> None:
    """Print the scores of a run on a split, or on a text of the user's own.

    Raises:
        InputError: if the run, the split or a file cannot be used.
    """
    if (source is None) != (reference is None):
        raise InputError("--source and --reference belong together")
    if output is not None and not output.parent.is_dir():
        raise InputError(f"{output.parent} is not a folder: --output cannot be written")
    experiment = load_experiment(directory)
    text = (
        read_aligned(source, reference)
        if source is not None and reference is not None
        else text_of_split(experiment, split, noted_data(directory))
    )
    decoding = _decoding(experiment, beam_size, length_penalty)
    trained = load_trained(directory, average)
    model, vocabulary = trained.model, trained.vocabulary
    decode = open_engine(engine, model, vocabulary, decoding)
    display = Display(None)
    try:
        scores = score(
            model,
            vocabulary,
            text,
            decoding,
            language=experiment.config.data.corpus.target_language,
            decode=decode,
            hypotheses_file=output,
            display=display,
        )
    finally:
        display.stop()
    print(f"BLEU {scores.bleu.score:.2f}  {scores.bleu.signature}")
    print(f"tokenised BLEU {scores.tokenised_bleu.score:.2f}  {scores.tokenised_bleu.signature}")
    print(
        f"perplexity {scores.perplexity.per_token:.3f} per word-piece, "
        f"{scores.perplexity.per_char:.3f} per character"
    )
    averaged = f", {trained.averaged} checkpoints averaged" if trained.averaged > 1 else ""
    print(
        f"{len(text[0]):,} lines, beam {decoding.beam_size}, "
        f"alpha {decoding.length_penalty}{averaged}"
    )


def translate_stream(
    directory: Path,
    stream: IO[bytes],
    *,
    average: int | None,
    beam_size: int | None,
    length_penalty: float | None,
    engine: str = "torch",
) -> Iterator[str]:
    """The translation of each line, in order, some hundred lines at a time.

    Raises:
        InputError: if the run cannot be used, or a line is not UTF-8.
    """
    experiment = load_experiment(directory)
    decoding = _decoding(experiment, beam_size, length_penalty)
    trained = load_trained(directory, average)
    model, vocabulary = trained.model, trained.vocabulary
    decode = open_engine(engine, model, vocabulary, decoding)
    lines = (
        decode_line(line.removesuffix(b"\n").removesuffix(b"\r"), "standard input", number)
        for number, line in enumerate(stream, start=1)
    )
    while chunk := list(itertools.islice(lines, _LINES_AT_ONCE)):
        yield from translate(model, vocabulary, chunk, decoding, decode=decode)


def text_of_split(experiment: Experiment, split: str, noted: Manifest | None = None) -> Text:
    """Source and reference lines of ``valid``, ``test`` or a set that sacreBLEU knows.

    Args:
        noted: the data that the run began with

    Raises:
        InputError: if there is no such split, or the data has changed.
    """
    corpus = experiment.config.data.corpus
    if split in ("valid", "test"):
        if split not in corpus.splits:
            raise InputError(
                f"the corpus {corpus.name} has no test set: give --source, --reference"
            )
        return prepare(experiment.config, expected=noted).text(split)
    return sacrebleu_text(split, f"{corpus.source_language}-{corpus.target_language}")


def _decoding(
    experiment: Experiment, beam_size: int | None, length_penalty: float | None
) -> DecodingConfig:
    changes = {"beam_size": beam_size, "length_penalty": length_penalty}
    given = {name: value for name, value in changes.items() if value is not None}
    return override(experiment.config, **given).decoding
