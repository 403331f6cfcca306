"""Whether one system translates better than another, or by chance (Koehn 2004)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from transformer.errors import InputError

_SAMPLES = 1_000
# A difference that chance makes more often than this is none.
_LEVEL = 0.05


@dataclass(frozen=True, kw_only=True, slots=True)
class System:
    """One system's sacreBLEU; ``low`` and ``high`` bound it with 95 % confidence."""

    name: str
    bleu: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"BLEU {self.bleu:.2f}  95 % in {self.low:.2f} to {self.high:.2f}  {self.name}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Significance:
    """Two systems on one text of ``lines`` lines.

    ``p_value`` is how often resampling alone makes a difference as large as theirs.
    """

    first: System
    second: System
    lines: int
    p_value: float
    signature: str

    @property
    def difference(self) -> float:
        """The second's BLEU less the first's."""
        return self.second.bleu - self.first.bleu

    @property
    def verdict(self) -> str:
        """What it means, in one sentence."""
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


def paired_bootstrap(
    first: tuple[str, Sequence[str]], second: tuple[str, Sequence[str]], references: Sequence[str]
) -> Significance:
    """sacreBLEU's paired bootstrap over 1,000 samples of the lines, drawn anew with its own seed.

    It speaks of the choice of lines: that another seed of training moves a system as far, it
    cannot know. The result is the same at every call. It takes about 40 kB of memory a line.

    Args:
        first: the name of a system, and its translations as detokenised lines
        second: those of the other
        references: as many lines

    Raises:
        InputError: if the numbers of lines differ, there are none, or ``SACREBLEU_SEED`` is unfit.
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
    test = PairedTest([first, second], {"BLEU": metric}, None, test_type="bs", n_samples=_SAMPLES)
    signatures, scores = test()
    results: list[Any] = scores["BLEU"]
    found = [
        System(name=name, bleu=x.score, low=x.mean - x.ci, high=x.mean + x.ci)
        for (name, _), x in zip((first, second), results, strict=True)
    ]
    return Significance(
        first=found[0],
        second=found[1],
        lines=len(references),
        # sacreBLEU counts the samples that exceed the difference: if all are 0 it finds none.
        p_value=1.0 if found[0].bleu == found[1].bleu else results[1].p_value,
        signature=str(signatures["BLEU"]),
    )


def _check_seed() -> None:
    """Refuse what sacreBLEU would read as no seed: ``none``, and 0 in one of its two places."""
    seed = os.environ.get("SACREBLEU_SEED")
    if seed is not None and not (seed.isdecimal() and int(seed) > 0):
        raise InputError(f"SACREBLEU_SEED is {seed!r}, but must be a whole number above 0")
