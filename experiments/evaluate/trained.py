"""Load a trained model, and translate and parse with it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO, Any

import torch

from experiments.devices import default_device
from experiments.records.data import run_vocabulary
from experiments.records.experiment import DecodingOptions, Experiment, load_experiment
from experiments.records.outputs import to_average
from experiments.records.result import Parses
from transformer.config import override
from transformer.data.corpora.declared import sacrebleu_set
from transformer.data.fetch.texts import fetch
from transformer.data.languages import language_of
from transformer.data.prepare.prepare import prepare
from transformer.data.prepared import Manifest
from transformer.data.text import MAX_LINE, arriving_lines, decode_line, read_aligned
from transformer.data.vocabulary import Vocabulary
from transformer.decoding import Constraint
from transformer.decoding.incremental import check_cache
from transformer.errors import InputError
from transformer.evaluation.bleu import bleu, chrf, tokenised_bleu
from transformer.evaluation.perplexity import translate
from transformer.model.encoder_decoder import Transformer
from transformer.parsing.constraint import Spelling, TreeConstraint
from transformer.parsing.evalb import evaluate_lines
from transformer.parsing.treebanks import leaves_of
from transformer.parsing.trees import delinearise, escape, to_penn
from transformer.pretrained import WEIGHTS_FILE, load_weights
from transformer.training.checkpoints import average_weights, check_trainings
from transformer.variant import build

Text = tuple[list[str], list[str]]

# Lines of standard input that are translated at a time.
_LINES_AT_ONCE = 512


@dataclass(frozen=True, slots=True)
class TrainedModel:
    """A trained model with its experiment and vocabulary.

    ``averaged`` counts the checkpoints in its weights.
    """

    experiment: Experiment
    model: Transformer
    vocabulary: Vocabulary
    averaged: int = 1

    @property
    def constrain(self) -> Callable[[Sequence[str]], Constraint] | None:
        """What a search may write for lines; None if anything."""
        return None

    def as_source(self, line: str) -> str:
        """A user's line as the source sentences of the corpus are written."""
        return line

    def as_shown(self, found: str, line: str) -> str:
        """What was decoded for the source ``line``, as a user reads it."""
        del line
        return found

    def score(self, text: Text, hypotheses: Sequence[str]) -> tuple[dict[str, Any], dict[str, str]]:
        """The figures of ``hypotheses`` by field of a :class:`Result`, and their signatures."""
        language, reference = self.experiment.config.data.corpus.target_language, text[1]
        scores = {
            "bleu": bleu(hypotheses, reference, language),
            "tokenised_bleu": tokenised_bleu(hypotheses, reference, language),
            "chrf": chrf(hypotheses, reference),
        }
        signatures = {f"{name}_signature": found.signature for name, found in scores.items()}
        return {name: found.score for name, found in scores.items()}, signatures

    def decode(
        self,
        lines: Sequence[str],
        *,
        on_progress: Callable[[int], object] | None = None,
        first_line: int = 1,
    ) -> list[str]:
        """Translate or parse lines, as the model was trained to do.

        Args:
            on_progress: called with the number of lines done so far
            first_line: the number of the first one in the text that they are from
        """
        return translate(
            self.model,
            self.vocabulary,
            lines,
            self.experiment.config.decoding,
            constrain=self.constrain,
            on_progress=on_progress,
            first_line=first_line,
        )


class TrainedParser(TrainedModel):
    """A trained model that writes trees: how it differs from one that writes translations."""

    @property
    def constrain(self) -> Callable[[Sequence[str]], Constraint]:
        """A search may write nothing but trees over the words of the lines."""
        spelling = Spelling(self.vocabulary, leaves_of(self.experiment.config.data.corpus))
        return partial(TreeConstraint, spelling, device=self.model.embedding.weight.device)

    def as_source(self, line: str) -> str:
        """A line with its brackets as treebanks write them."""
        return escape(line)

    def as_shown(self, found: str, line: str) -> str:
        """The tree in brackets; nothing for a sentence that is too long."""
        return to_penn(delinearise(found, line.split())) if found or not line else found

    def score(self, text: Text, hypotheses: Sequence[str]) -> tuple[dict[str, Any], dict[str, str]]:
        """The figures of EVALB, which has no signature."""
        found, baseline = evaluate_lines(*text, hypotheses)
        return {"parses": Parses(baseline_f1=baseline.f1, **asdict(found))}, {}


def _trained(
    experiment: Experiment, model: Transformer, vocabulary: Vocabulary, averaged: int = 1
) -> TrainedModel:
    is_parser = experiment.config.data.corpus.task == "parsing"
    kind = TrainedParser if is_parser else TrainedModel
    return kind(experiment, model, vocabulary, averaged)


def load_trained(
    directory: Path | str,
    average: int | None = None,
    *,
    beam_size: int | None = None,
    length_penalty: float | None = None,
    device: torch.device | None = None,
) -> TrainedModel:
    """Load the model of a run or of an export as safetensors.

    Args:
        average: how many of the last checkpoints to average; None for as many as configured
        beam_size, length_penalty: as in :class:`DecodingOptions`
        device: None takes a GPU if there is one

    Raises:
        InputError: if the directory holds no model, or not enough checkpoints.
    """
    directory, device = Path(directory), device or default_device()
    experiment = load_experiment(directory)
    search = {"beam_size": beam_size, "length_penalty": length_penalty}
    given = {name: value for name, value in search.items() if value is not None}
    experiment = replace(experiment, config=override(experiment.config, **given))
    if (directory / WEIGHTS_FILE).is_file():
        if average is not None:
            raise InputError(f"{directory} is an export and holds no checkpoints to average")
        model = load_weights(experiment.config.model, directory).to(device)
        return _trained(experiment, model, run_vocabulary(directory))
    checkpoints = choose_checkpoints(experiment, directory, average)
    try:
        return load_average(experiment, checkpoints, run_vocabulary(directory), device)
    except FileNotFoundError as error:
        raise InputError(f"{error.filename} was removed, as by training: try again") from error


def choose_checkpoints(
    experiment: Experiment, directory: Path, average: int | None = None
) -> list[Path]:
    """The last ``average`` checkpoints; if None, as many as configured or as there are."""
    if average is not None and average < 1:
        raise InputError(f"average is {average}, but must be at least 1")
    paths = to_average(directory, average or experiment.config.training.average_checkpoints)
    if not paths:
        raise InputError(f"{directory} has no checkpoint that can be read: train it first")
    if average is not None and len(paths) < average:
        raise InputError(
            f"{directory} holds {len(paths)} of the {average} checkpoints to average, as a run "
            "keeps those that it was scored with: train with average_checkpoints set to as many"
        )
    return paths


def load_average(
    experiment: Experiment, checkpoints: list[Path], vocabulary: Vocabulary, device: torch.device
) -> TrainedModel:
    """The model with the mean of the checkpoints' weights, all of the experiment's training."""
    check_trainings(checkpoints, experiment.config)
    model = build(experiment.config.model)
    weights = average_weights(checkpoints)
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{checkpoints[-1]} does not fit the run's model: {reason}") from error
    model.to(device).eval()
    if experiment.config.model.model is not None:
        check_cache(model)
    return _trained(experiment, model, vocabulary, len(checkpoints))


def translate_stream(
    directory: Path, stream: IO[bytes], options: DecodingOptions = DecodingOptions()
) -> Iterator[str]:
    """Translate each line, in order, those that have arrived together, up to some hundred; a parser
    makes a tree of it, where words and punctuation have spaces between them.
    """
    trained, first_line = load_trained(directory, **asdict(options)), 1
    for arrived in arriving_lines(stream):
        for start in range(0, len(arrived), _LINES_AT_ONCE):
            numbered = enumerate(arrived[start : start + _LINES_AT_ONCE], first_line)
            read = [_read_line(*line) for line in numbered]
            yield from _translate(trained, read, first_line)
            first_line += len(read)


def _translate(trained: TrainedModel, read: Sequence[str | None], first_line: int) -> Iterator[str]:
    lines = [trained.as_source(line or "") for line in read]
    decoded = trained.decode(lines, first_line=first_line)
    for as_read, line, found in zip(read, lines, decoded, strict=True):
        yield "" if as_read is None else trained.as_shown(found, line)


def _read_line(number: int, line: bytes) -> str | None:
    """A line as text; None, with a warning, if it is too long."""
    if len(line) > MAX_LINE:
        warnings.warn(f"line {number:,} has more than {MAX_LINE:,} bytes: left empty", stacklevel=2)
        return None
    return decode_line(line, "standard input", number)


def text_of_split(experiment: Experiment, split: str, recorded: Manifest | None = None) -> Text:
    """Source and reference lines of ``valid``, ``test`` or a set that sacreBLEU knows.

    Args:
        recorded: the data that the run started with
    """
    corpus = experiment.config.data.corpus
    if split in ("valid", "test"):
        if split not in corpus.splits:
            raise InputError(
                f"the corpus {corpus.name} has no test set: give --source, --reference"
            )
        return prepare(experiment.config, expected=recorded).text(split)
    source, target = map(language_of, (corpus.source_language, corpus.target_language))
    text = sacrebleu_set(split, f"{source.code}-{target.code}")
    return read_aligned(fetch(text.source), fetch(text.target))
