"""Compare two systems by approximate randomisation (Noreen 1989)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from experiments.records.data import recorded_data
from experiments.records.experiment import load_experiment
from experiments.records.outputs import hypotheses_path
from experiments.records.result import MEASURES
from experiments.records.run import Run
from transformer.data.text import read_text
from transformer.errors import InputError
from transformer.evaluation.bleu import sacrebleu_metric
from transformer.files import check_plain

_TRIALS, _SAMPLES = 10_000, 1_000
# A line takes sacreBLEU 0.1 MB, and each of its words 1 kB.
_MOST_LINES, _MOST_CHARACTERS = 40_000, 2**24
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
    """A difference in BLEU, and how often a random exchange of lines makes one as large."""

    first: System
    second: System
    lines: int
    p_value: float
    signature: str

    @property
    def difference(self) -> float:
        return self.second.bleu - self.first.bleu

    @property
    def verdict(self) -> str:
        if self.p_value >= _LEVEL:
            return "the difference is within noise"
        if self.difference > 0:
            return f"{self.second.name} is better than {self.first.name}"
        return f"{self.first.name} is better than {self.second.name}"

    def __str__(self) -> str:
        return (
            f"{self.first}\n{self.second}\n"
            f"difference {self.difference:+.2f}, p = {self.p_value:.3f}, {self.lines:,} lines: "
            f"{self.verdict}\n{self.signature}"
        )


def compare_runs(first: Run, second: Run, split: str) -> Significance:
    """Compare two runs by the translations of ``split`` that they wrote."""
    from experiments.evaluate.trained import text_of_split  # which imports torch

    for run in (first, second):
        run.check()
        where = run.directory
        if load_experiment(run.files).config.data.corpus.measure != "bleu":
            raise InputError(
                f"{where} is a parser's, and BLEU is for translations: evaluate prints F1"
            )
        path = hypotheses_path(run.files, split)
        check_plain(path)
        if not path.is_file():
            raise InputError(
                f"{where} has no {path.name}: it is not finished, or was not scored on {split}"
            )
    data, others = recorded_data(first.files), recorded_data(second.files)
    if data and others:
        for name in sorted({*data.files, *others.files}):
            is_text = name.startswith(f"{split}/") and name.endswith(".txt")
            if is_text and data.files.get(name) != others.files.get(name):
                raise InputError(
                    f"{first.directory} and {second.directory} were scored on different text: "
                    f"{name} differs"
                )
    experiment = load_experiment(first.files)
    text = text_of_split(experiment, split, data)
    one, other = (
        (str(run.directory), read_text(hypotheses_path(run.files, split)))
        for run in (first, second)
    )
    language = experiment.config.data.corpus.target_language
    return compare_lines(one, other, text.references, language, text.more)


def compare_lines(
    first: tuple[str, Sequence[str]],
    second: tuple[str, Sequence[str]],
    references: Sequence[str],
    language: str = "en",
    more: Sequence[Sequence[str]] = (),
) -> Significance:
    """Compare two systems, each a name and its lines, by sacreBLEU's approximate randomisation.

    Each trial exchanges a random half of the lines between the systems. (The p value of
    sacreBLEU's paired bootstrap is one-sided: at 0.05 it calls one chance difference in ten real.)
    The test accounts for the choice of lines, not for the effect of another training seed. The
    confidence intervals are from a bootstrap over the lines. The result is the same at every call.
    """
    from sacrebleu.significance import PairedTest

    for name, lines in (first, second):
        if len(lines) != len(references):
            raise InputError(f"{name} has {len(lines)} lines but the references {len(references)}")
    if not references:
        raise InputError("there are no lines to compare")
    if len(references) > _MOST_LINES or sum(map(len, references)) > _MOST_CHARACTERS:
        raise InputError(
            f"the text is too large to be compared: at most {_MOST_LINES:,} lines and "
            f"{_MOST_CHARACTERS:,} characters; compare a part of it"
        )
    test = PairedTest(
        [first, second],
        {"BLEU": sacrebleu_metric(language, [references, *more])},
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
    # sacreBLEU counts the trials with a larger difference. Of all ways to exchange the lines that
    # differ, two give exactly this one, none and all, so p cannot be below their share.
    differing = sum(one != other for one, other in zip(first[1], second[1], strict=True))
    least = 0.5 ** (differing - 1) if found[0].bleu != found[1].bleu else 1.0
    return Significance(
        first=found[0],
        second=found[1],
        lines=len(references),
        p_value=max(results[1].p_value, least),
        signature=str(signatures["BLEU"]),
    )
