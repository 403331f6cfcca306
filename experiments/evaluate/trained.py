"""Load a trained model, and translate with it."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import torch

from experiments.devices import default_device
from experiments.display import Display
from experiments.evaluate.options import DecodingOptions
from experiments.evaluate.parsing import constrain_to_trees, parse_lines
from experiments.evaluate.scoring import Text, choose_checkpoints, load_average, score
from experiments.records.data import recorded_data, run_vocabulary
from experiments.records.experiment import Experiment, load_experiment
from experiments.records.result import parse_scores
from transformer.config import DecodingConfig, override
from transformer.data.fetch.testsets import sacrebleu_text
from transformer.data.prepare.prepare import prepare
from transformer.data.prepared import Manifest
from transformer.data.text import MAX_LINE, bounded_lines, decode_line, read_aligned
from transformer.data.trees import escape, to_penn
from transformer.data.vocabulary import Vocabulary
from transformer.errors import InputError, require
from transformer.evaluation.perplexity import Decode, translate
from transformer.model.encoder_decoder import Transformer
from transformer.pretrained import WEIGHTS_FILE, load_weights

# Lines of standard input that are translated at a time.
_LINES_AT_ONCE = 512


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainedModel:
    """A trained model with its experiment and vocabulary; ``averaged`` counts the checkpoints in
    its weights.
    """

    experiment: Experiment
    model: Transformer
    vocabulary: Vocabulary
    averaged: int


def load_trained(
    directory: Path | str, average: int | None = None, *, device: torch.device | None = None
) -> TrainedModel:
    """Load the model of a run or of an export as safetensors.

    Args:
        average: how many of the last checkpoints to average; None for as many as configured
        device: None takes a GPU if there is one

    Raises:
        InputError: if the directory holds no model, or not enough checkpoints.
    """
    directory, device = Path(directory), device or default_device()
    experiment = load_experiment(directory)
    if (directory / WEIGHTS_FILE).is_file():
        if average is not None:
            raise InputError(f"{directory} is an export and holds no checkpoints to average")
        model, averaged = load_weights(experiment.config.model, directory).to(device), 1
    else:
        checkpoints = choose_checkpoints(experiment, directory, average)
        model, averaged = load_average(experiment, checkpoints, device), len(checkpoints)
    vocabulary = run_vocabulary(directory)
    return TrainedModel(
        experiment=experiment, model=model, vocabulary=vocabulary, averaged=averaged
    )


def open_decoder(
    directory: Path, options: DecodingOptions
) -> tuple[TrainedModel, DecodingConfig, Decode | None]:
    """The model of ``directory``, how it decodes, and the search if it is not our own.

    Raises:
        InputError: if the run cannot be used, or the engine is not installed.
    """
    changes = {"beam_size": options.beam_size, "length_penalty": options.length_penalty}
    given = {name: value for name, value in changes.items() if value is not None}
    config = override(load_experiment(directory).config, **given)
    if config.data.corpus.task == "parsing" and options.engine == "ctranslate2":
        raise InputError("CTranslate2 cannot be held to trees: parse with --engine torch")
    trained = load_trained(directory, options.average)
    decode = open_ctranslate2(trained, config.decoding) if options.engine != "torch" else None
    return trained, config.decoding, decode


def open_ctranslate2(
    trained: TrainedModel, decoding: DecodingConfig, folder: Path | None = None
) -> Decode:
    """The search by CTranslate2 with the weights of ``trained``, or of its export in ``folder``.

    Raises:
        InputError: if CTranslate2 is not installed.
    """
    require("ctranslate2")
    from experiments.export.ctranslate2_engine import CTranslate2Decoder

    return CTranslate2Decoder(trained.model, trained.vocabulary, decoding, folder=folder).decode


def translate_stream(
    directory: Path, stream: IO[bytes], options: DecodingOptions | None = None
) -> Iterator[str]:
    """Translate each line, in order, some hundred lines at a time.

    Raises:
        InputError: if the run cannot be used, or a line is not UTF-8. A line that is too long stays
            empty, with a warning.
    """
    for _, translation in _decode_stream(directory, stream, options):
        yield translation


def parse_stream(
    directory: Path, stream: IO[bytes], options: DecodingOptions | None = None
) -> Iterator[str]:
    """Parse each line, a sentence with spaces between its words, into a tree in brackets.

    Raises:
        InputError: if the run cannot be used or is no parser, or a line is not UTF-8.
    """
    corpus = load_experiment(directory).config.data.corpus
    if corpus.task != "parsing":
        raise InputError(f"{directory} does not parse, it translates: use translate {directory}")
    for sentence, line in _decode_stream(directory, stream, options, escape):
        trees = parse_lines([sentence], [line]) if line or not sentence else []
        yield "".join(map(to_penn, trees))


def _decode_stream(
    directory: Path,
    stream: IO[bytes],
    options: DecodingOptions | None,
    change: Callable[[str], str] = str,
) -> Iterator[tuple[str, str]]:
    """Each line after ``change``, with what the model makes of it."""
    trained, decoding, decode = open_decoder(directory, options or DecodingOptions())
    corpus, device = trained.experiment.config.data.corpus, trained.model.embedding.weight.device
    parses = corpus.task == "parsing"
    constrain = constrain_to_trees(corpus, trained.vocabulary, device) if parses else None
    lines = (change(_read_line(*line)) for line in enumerate(bounded_lines(stream), start=1))
    first_line = 1
    while chunk := list(itertools.islice(lines, _LINES_AT_ONCE)):
        decoded = translate(
            trained.model,
            trained.vocabulary,
            chunk,
            decoding,
            decode=decode,
            constrain=constrain,
            first_line=first_line,
        )
        yield from zip(chunk, decoded, strict=True)
        first_line += len(chunk)


def _read_line(number: int, line: bytes) -> str:
    if len(line) > MAX_LINE:
        warnings.warn(f"line {number:,} has more than {MAX_LINE:,} bytes: left empty", stacklevel=2)
        return ""
    return decode_line(line, "standard input", number)


def evaluate_run(
    directory: Path,
    options: DecodingOptions,
    *,
    split: str,
    source: Path | None,
    reference: Path | None,
    output: Path | None,
) -> None:
    """Print the scores of a run on a split, or on the lines of two files.

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
        else text_of_split(experiment, split, recorded_data(directory))
    )
    trained, decoding, decode = open_decoder(directory, options)
    with Display(None) as display:
        scores = score(
            trained.model,
            trained.vocabulary,
            text,
            decoding,
            experiment.config.data.corpus,
            decode=decode,
            hypotheses_file=output,
            display=display,
        )
    for name, bleu in (("BLEU", scores.bleu), ("tokenised BLEU", scores.tokenised_bleu)):
        if bleu is not None:
            print(f"{name} {bleu.score:.2f}  {bleu.signature}")
    if scores.parses is not None:
        print(parse_scores(scores.parses))
    print(
        f"perplexity {scores.perplexity.per_token:.3f} per word-piece, "
        f"{scores.perplexity.per_char:.3f} per character"
    )
    averaged = f", {trained.averaged} checkpoints averaged" if trained.averaged > 1 else ""
    print(
        f"{len(text[0]):,} lines, beam {decoding.beam_size}, "
        f"alpha {decoding.length_penalty}{averaged}"
    )


def text_of_split(experiment: Experiment, split: str, recorded: Manifest | None = None) -> Text:
    """Source and reference lines of ``valid``, ``test`` or a set that sacreBLEU knows.

    Args:
        recorded: the data that the run started with

    Raises:
        InputError: if there is no such split, or the data has changed.
    """
    corpus = experiment.config.data.corpus
    if split in ("valid", "test"):
        if split not in corpus.splits:
            raise InputError(
                f"the corpus {corpus.name} has no test set: give --source, --reference"
            )
        return prepare(experiment.config, expected=recorded).text(split)
    return sacrebleu_text(split, f"{corpus.source_language}-{corpus.target_language}")
