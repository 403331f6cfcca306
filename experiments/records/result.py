"""The scores of a finished run, in ``result.json``."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Literal

from transformer import formats
from transformer.config import from_dict, to_dict
from transformer.files import read_json, to_json, write_atomically
from transformer.variant import split_name

RESULT_FILE = "result.json"
PRUNED_FILE = "pruned.json"  # in place of a result, for a trial that a search ended early
_PLATEAU = 0.5  # the share of the unigrams' perplexity above which a training has diverged


@dataclass(frozen=True, kw_only=True, slots=True)
class Parses:
    """How well a text was parsed, in per cent (:mod:`transformer.parsing.evalb`).

    ``baseline_f1`` is that of right-branching trees.
    """

    precision: float
    recall: float
    f1: float
    exact_match: float
    baseline_f1: float
    sentences: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Averaged:
    """Scores on the validation set of the mean of the last ``checkpoints`` checkpoints."""

    checkpoints: int
    bleu: float | None = None
    tokenised_bleu: float | None = None
    chrf: float | None = None
    perplexity: float
    perplexity_per_char: float
    parses: Parses | None = None

    @property
    def f1(self) -> float | None:
        return self.parses and self.parses.f1


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """One finished run; its names are those of the columns in reports.

    Scores are of the validation set, as in Table 3; those of the test set begin with ``test_``.
    ``bleu`` and ``chrf`` are sacreBLEU's, ``tokenised_bleu`` is computed as in the paper; a parser
    has ``parses`` instead. ``perplexity`` is per word-piece, ``perplexity_per_char`` per character
    of the reference. ``averaged`` has the scores of an average of more checkpoints, if requested.

    ``parameters`` is the model's own count, ``parameters_paper_vocab`` that with the 40,960
    embedding rows that fit the paper's column. Tokens exclude padding and are summed over all
    steps; ``corpus_target_tokens`` are those of one epoch. ``flops`` is analytic; ``flops_nominal``
    is counted as in Table 2, None for a device without a nominal peak. ``train_seconds`` leaves out
    preparation and evaluation. ``peak_memory_bytes`` is reserved on a GPU, else resident.
    ``finished_at`` is UTC. ``files_digest`` is of the checksums of the run's other files
    (:mod:`experiments.records.checksums`). ``step_kind`` is how training steps were computed
    (:mod:`transformer.training.step_kinds`). ``sentences_per_second`` are those of the
    validation set, while it is decoded. Fields with a default may be missing in older results.

    ``unigram_perplexity`` is what the word-pieces' frequencies alone reach
    (:mod:`transformer.evaluation.perplexity`). Training ended at the step ``diverged_at`` if its
    gradient was infinite or NaN: the perplexity is infinite then, and nothing was translated.
    ``own_scores`` are those of a user's functions, by ``function@digest``.
    """

    experiment: str
    seed: int
    bleu: float | None = None
    bleu_signature: str | None = None
    perplexity: float
    perplexity_per_char: float
    parameters: int
    parameters_paper_vocab: int
    steps: int
    source_tokens: int
    target_tokens: int
    flops: float
    train_seconds: float
    tokens_per_second: float
    device: str
    precision: str
    averaged_checkpoints: int
    versions: dict[str, str] = field(default_factory=dict)
    commit: str
    finished_at: str
    devices: int = 1
    flops_nominal: float | None = None
    test_bleu: float | None = None
    test_perplexity: float | None = None
    test_perplexity_per_char: float | None = None
    tokenised_bleu: float | None = None
    tokenised_bleu_signature: str | None = None
    test_tokenised_bleu: float | None = None
    averaged: Averaged | None = None
    data_digest: str | None = None
    corpus_target_tokens: int | None = None
    parses: Parses | None = None
    test_parses: Parses | None = None
    peak_memory_bytes: int | None = None
    files_digest: str | None = None
    step_kind: str | None = None
    sentences_per_second: float | None = None
    unigram_perplexity: float | None = None
    diverged_at: int | None = None
    chrf: float | None = None
    chrf_signature: str | None = None
    test_chrf: float | None = None
    own_scores: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        datetime.fromisoformat(self.finished_at)
        if not 0 <= self.train_seconds < math.inf:
            raise ValueError(f"train_seconds is {self.train_seconds}")
        if self.parameters < 1 or self.steps < 1:
            raise ValueError(f"it has {self.parameters} parameters and {self.steps} steps")
        if self.diverged_at is not None and not self.diverged_at == self.steps:
            raise ValueError(f"it diverged at step {self.diverged_at} of {self.steps}")
        if self.diverged_at is not None and math.isfinite(self.perplexity):
            raise ValueError(f"it diverged, but its perplexity is {self.perplexity}")

    @property
    def has_diverged(self) -> bool:
        """Whether the perplexity is not finite, or above half of that of unigrams.

        A deep post-norm model fails on a plateau, where it has learned hardly more than how
        frequent each word-piece is: its loss stays finite.
        """
        if not math.isfinite(self.perplexity):
            return True
        limit = self.unigram_perplexity
        return limit is not None and self.perplexity > _PLATEAU * limit

    @property
    def f1(self) -> float | None:
        return self.parses and self.parses.f1

    @property
    def test_f1(self) -> float | None:
        return self.test_parses and self.test_parses.f1


def load_result(directory: Path) -> Result | None:
    """The result of the run in ``directory``, or None if it has not finished.

    Fields that only other versions have are skipped, so that their results stay readable.
    """
    path = directory / RESULT_FILE
    if not os.path.lexists(path):
        return None
    return from_dict(Result, read_json(path), str(path), strict=False)


def save_result(directory: Path, result: Result) -> None:
    """Write the result; from then on the run counts as finished."""
    write_atomically(directory / RESULT_FILE, content_of(result))


def content_of(result: Result) -> bytes:
    """The bytes that :func:`save_result` writes."""
    return to_json(to_dict(result)).encode()


@dataclass(frozen=True, slots=True)
class Measure:
    """A score by the name of its field in a :class:`Result`.

    ``label`` is its name in sentences and ``short`` that at the head of a column; ``digits`` are
    its decimals, ``paper_digits`` those that the paper gives, and ``scale`` the least and the
    greatest value that it can have. A user's own has a ``key`` in the result's ``own_scores``.
    """

    name: str
    label: str
    short: str
    digits: int
    paper_digits: int
    direction: Literal["minimize", "maximize"] = "maximize"
    scale: tuple[float, float] = (0.0, 100.0)
    key: str = ""

    def of(self, result: Result) -> float | None:
        """The score of a run; None if it has none."""
        return result.own_scores.get(self.key) if self.key else getattr(result, self.name)

    @property
    def title(self) -> str:
        """Its name at the start of a sentence."""
        is_word = self.label.isalpha() and self.label.islower()
        return self.label.capitalize() if is_word else self.label

    @property
    def is_of_test(self) -> bool:
        return self.name.startswith("test_")


def score_key(function: str) -> str:
    """The key of a user's function in ``own_scores``: its name and the digest of its source,
    without its module, whose file may be renamed.
    """
    _, name, digest = split_name(function)
    return f"{name}@{digest}"


MEASURES = {
    measure.name: measure
    for measure in (
        Measure("perplexity", "perplexity", "PPL", 3, 2, "minimize", (1.0, math.inf)),
        Measure("bleu", "BLEU", "BLEU", 1, 1),
        Measure("test_bleu", "BLEU of the test set", "BLEU test", 1, 1),
        Measure("chrf", "chrF", "chrF", 1, 1),
        Measure("test_chrf", "chrF of the test set", "chrF test", 1, 1),
        Measure("f1", "F1", "F1", 1, 1),
        Measure("test_f1", "F1 of the test set", "F1 test", 1, 1),
    )
}


def valid_scores(result: Result) -> dict[str, float]:
    """The scores of a run on the validation set, by measure."""
    found = {x: getattr(result, x) for x in MEASURES if not MEASURES[x].is_of_test}
    return {name: score for name, score in found.items() if score is not None}


def in_words(scores: dict[str, float]) -> str:
    """Scores in one line: ``perplexity 7.52, BLEU 30.4``."""
    found = [(MEASURES[name], score) for name, score in scores.items() if name in MEASURES]
    return ", ".join(f"{x.label} {formats.number(y, x.paper_digits)}" for x, y in found)
