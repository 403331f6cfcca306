"""Approximate randomisation of two systems (Noreen 1989)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.records.checksums import check_unchanged
from experiments.records.data import recorded_data
from experiments.records.experiment import Experiment, load_experiment
from experiments.records.outputs import hypotheses_path
from experiments.records.result import MEASURES
from transformer.data.text import read_text
from transformer.errors import InputError

_TRIALS, _SAMPLES = 10_000, 1_000
# A difference that chance produces more often than this is called noise.
_LEVEL = 0.05


@dataclass(frozen=True, kw_only=True, slots=True)
class System:
    """The BLEU of one system by sacreBLEU, with its 95 % confidence interval."""

    name: str
    bleu: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"BLEU {self.bleu:.2f}  95 % in {self.low:.2f} to {self.high:.2f}  {self.name}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Significance:
    """Two systems on one text of ``lines`` lines.

    ``p_value`` is how often exchanging lines at random makes a difference as large as theirs.
    """

    first: System
    second: System
    lines: int
    p_value: float
    signature: str

    @property
    def difference(self) -> float:
        """BLEU of the second minus that of the first."""
        return self.second.bleu - self.first.bleu

    @property
    def verdict(self) -> str:
        """What the test says, in one sentence."""
        if self.p_value >= _LEVEL:
            return "the difference is within noise"
        better, worse = (self.first, self.second)[:: -1 if self.difference > 0 else 1]
        return f"{better.name} is better than {worse.name}"

    def __str__(self) -> str:
        return (
            f"{self.first}\n{self.second}\n"
            f"difference {self.difference:+.2f}, p = {self.p_value:.3f}, {self.lines:,} lines: "
            f"{self.verdict}\n{self.signature}"
        )


def compare_runs(first: Path, second: Path, split: str) -> Significance:
    """Compare two runs by the translations of ``split`` that they wrote.

    Raises:
        InputError: if one is no run or wrote none, has changed since, or they translated different
            text.
    """
    for path in (first, second):
        if path.is_file():
            raise InputError(
                f"{path} is a file: to compare two files of translations give --reference FILE, "
                "the lines that they should say"
            )
    from experiments.evaluate.trained import text_of_split  # imports torch

    for path in (first, second):
        check_unchanged(path)
    experiment = load_experiment(first)
    _check_same_split(experiment, load_experiment(second), split)
    ours, theirs = (_hypotheses(run, split) for run in (first, second))
    data, other = recorded_data(first), recorded_data(second)
    for name in (f"{split}/source.txt", f"{split}/reference.txt"):
        if data and other and data.files.get(name) != other.files.get(name):
            raise InputError(f"{first} and {second} were scored on different text: {name} differs")
    _, references = text_of_split(experiment, split, data)
    return compare_lines((str(first), ours), (str(second), theirs), references)


def compare_files(first: Path, second: Path, reference: Path) -> Significance:
    """Compare two files of translations, a line for each line of ``reference``."""
    return compare_lines(
        (str(first), read_text(first)), (str(second), read_text(second)), read_text(reference)
    )


def _hypotheses(directory: Path, split: str) -> list[str]:
    path = hypotheses_path(directory, split)
    if not path.is_file():
        raise InputError(
            f"{directory} has no {path.name}: it is not finished, or was not scored on {split}"
        )
    return read_text(path)


def _check_same_split(first: Experiment, second: Experiment, split: str) -> None:
    one, other = first.config.data.corpus, second.config.data.corpus
    for corpus in (one, other):
        if split not in corpus.splits:
            raise InputError(f"the corpus {corpus.name} has no {split} set")
    if (one.splits[split], one.target_language) != (other.splits[split], other.target_language):
        raise InputError(
            f"the runs translated different {split} sets, of {one.name} and of {other.name}: "
            "compare runs on one corpus"
        )


def compare_lines(
    first: tuple[str, Sequence[str]], second: tuple[str, Sequence[str]], references: Sequence[str]
) -> Significance:
    """Compare two systems by sacreBLEU's approximate randomisation, 10,000 trials.

    Each trial exchanges a random half of the lines between the systems. (The p value of
    sacreBLEU's paired bootstrap is one-sided: at 0.05 it calls one chance difference in ten real.)
    It accounts for the choice of lines, not for how far another training seed would move a system.
    The intervals are of a bootstrap over the lines. The result is the same at every call. It takes
    about 120 kB of memory per line.

    Args:
        first: the name of a system, and its translations as detokenised lines
        second: those of the other
        references: as many lines

    Raises:
        InputError: if the numbers of lines differ, there are none, or ``SACREBLEU_SEED`` is
            invalid.
    """
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.significance import PairedTest

    for name, lines in (first, second):
        if len(lines) != len(references):
            raise InputError(f"{name} has {len(lines)} lines but the references {len(references)}")
    if not references:
        raise InputError("there are no lines to compare")
    _check_seed()
    metric = BLEU(references=[list(references)])
    test = PairedTest(
        [first, second],
        {"BLEU": metric},
        None,
        test_type="ar",
        n_samples=_TRIALS,
        n_ar_confidence=_SAMPLES,
    )
    signatures, scores = test()
    results: list[Any] = scores["BLEU"]
    low, high = MEASURES["bleu"].scale
    found = [
        System(name=name, bleu=x.score, low=max(x.mean - x.ci, low), high=min(x.mean + x.ci, high))
        for (name, _), x in zip((first, second), results, strict=True)
    ]
    return Significance(
        first=found[0],
        second=found[1],
        lines=len(references),
        # sacreBLEU counts trials above the difference; equal systems would get p = 0.
        p_value=1.0 if found[0].bleu == found[1].bleu else results[1].p_value,
        signature=str(signatures["BLEU"]),
    )


def _check_seed() -> None:
    """Refuse ``none`` and 0, which sacreBLEU reads as no seed in one or both of its two places."""
    seed = os.environ.get("SACREBLEU_SEED")
    if seed is not None and not (seed.isdecimal() and int(seed) > 0):
        raise InputError(f"SACREBLEU_SEED is {seed!r}, but must be a whole number above 0")
