"""Load a trained model, which translates or parses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from experiments.devices import default_device
from experiments.evaluate.translator import Text, Translator, with_search
from experiments.records.data import run_vocabulary
from experiments.records.experiment import Experiment, load_experiment
from experiments.records.outputs import to_average
from experiments.records.result import Parses
from transformer.data.corpora.declared import sacrebleu_set
from transformer.data.fetch.texts import fetch
from transformer.data.languages import language_of
from transformer.data.prepare.prepare import prepare
from transformer.data.prepared import Manifest, PreparedCorpus
from transformer.data.text import read_aligned
from transformer.data.vocabulary import Vocabulary
from transformer.decoding import Constraint
from transformer.decoding.incremental import check_cache
from transformer.errors import InputError
from transformer.evaluation.perplexity import Perplexity, perplexity, translate
from transformer.model.encoder_decoder import Transformer
from transformer.parsing.constraint import Spelling, TreeConstraint
from transformer.parsing.evalb import evaluate_lines
from transformer.parsing.treebanks import leaves_of
from transformer.parsing.trees import delinearise, escape, to_penn
from transformer.pretrained import WEIGHTS_FILE, load_weights
from transformer.training.checkpoints import average_weights, check_trainings
from transformer.variant import build


@dataclass(frozen=True, slots=True)
class TrainedModel(Translator):
    """A trained model with its experiment and vocabulary.

    ``averaged`` counts the checkpoints in its weights.
    """

    model: Transformer
    averaged: int = 1

    @property
    def constrain(self) -> Callable[[Sequence[str]], Constraint] | None:
        """The constraint on what a search may write for given lines; None if there is none."""
        return None

    @property
    def search(self) -> str:
        averaged = f", {self.averaged} checkpoints averaged" if self.averaged > 1 else ""
        decoding = self.experiment.config.decoding
        return f"beam {decoding.beam_size}, alpha {decoding.length_penalty}{averaged}"

    def decode(
        self,
        lines: Sequence[str],
        *,
        on_progress: Callable[[int], object] | None = None,
        first_line: int = 1,
    ) -> list[str]:
        return translate(
            self.model,
            self.vocabulary,
            lines,
            self.experiment.config.decoding,
            constrain=self.constrain,
            on_progress=on_progress,
            first_line=first_line,
        )

    def perplexity(self, text: Text) -> Perplexity:
        return perplexity(self.model, self.vocabulary, text.sources, text.references)


class TrainedParser(TrainedModel):
    """A trained model that writes trees."""

    @property
    def constrain(self) -> Callable[[Sequence[str]], Constraint]:
        """Allows nothing but trees over the words of the lines."""
        spelling = Spelling(self.vocabulary, leaves_of(self.experiment.config.data.corpus))
        return partial(TreeConstraint, spelling, device=self.model.embedding.weight.device)

    def as_source(self, line: str) -> str:
        """A line with its brackets as treebanks write them."""
        return escape(line)

    def as_shown(self, found: str, line: str) -> str:
        """The tree in brackets; nothing for a sentence that is too long."""
        if line and not found:
            return ""
        return to_penn(delinearise(found, line.split()))

    def score(self, text: Text, hypotheses: Sequence[str]) -> tuple[dict[str, Any], dict[str, str]]:
        """EVALB's scores; it has no signature and takes one reference."""
        found, baseline = evaluate_lines(text.sources, text.references, hypotheses)
        return {"parses": Parses(baseline_f1=baseline.f1, **asdict(found))}, {}


def _trained(
    experiment: Experiment, model: Transformer, vocabulary: Vocabulary, averaged: int = 1
) -> TrainedModel:
    is_parser = experiment.config.data.corpus.task == "parsing"
    kind = TrainedParser if is_parser else TrainedModel
    return kind(experiment, vocabulary, model, averaged)


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
    experiment = with_search(experiment, beam_size, length_penalty)
    if (directory / WEIGHTS_FILE).is_file():
        if average is not None:
            raise InputError(f"{directory} is an export and holds no checkpoints to average")
        model = load_weights(experiment.config.model, directory).to(device)
        return _trained(experiment, model, run_vocabulary(directory))
    checkpoints = choose_checkpoints(experiment, directory, average)
    try:
        return load_average(experiment, checkpoints, run_vocabulary(directory), device)
    except FileNotFoundError as error:
        raise InputError(f"{error.filename} has just been removed: try again") from error


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
            f"keeps those that it was scored with: train with average_checkpoints={average}"
        )
    return paths


def load_average(
    experiment: Experiment, checkpoints: list[Path], vocabulary: Vocabulary, device: torch.device
) -> TrainedModel:
    """The model with the mean of the checkpoints' weights; all must be from its training."""
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


def prepared_text(corpus: PreparedCorpus, split: str) -> Text:
    """The lines of ``valid`` or ``test`` with all of their references."""
    return Text(*corpus.text(split), corpus.more_references(split))


def text_of_split(experiment: Experiment, split: str, recorded: Manifest | None = None) -> Text:
    """The lines of ``valid``, ``test`` or a set that sacreBLEU knows, with their references.

    Args:
        recorded: the data that the run started with
    """
    corpus = experiment.config.data.corpus
    if split in ("valid", "test"):
        if split not in corpus.splits:
            raise InputError(
                f"the corpus {corpus.name} has no test set: give --source, --reference"
            )
        return prepared_text(prepare(experiment.config, expected=recorded), split)
    source, target = map(language_of, (corpus.source_language, corpus.target_language))
    text = sacrebleu_set(split, f"{source.code}-{target.code}")
    return Text(*read_aligned(fetch(text.source), fetch(text.target)))
