"""What a run leaves behind for tables and reports: one ``result.json``."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from experiments.run.files import read_json, write_json
from transformer.config import from_dict, to_dict
from transformer.errors import InputError

RESULT_FILE = "result.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class Averaged:
    """Scores of the validation set by the mean of the last ``checkpoints`` ones."""

    checkpoints: int
    bleu: float
    tokenised_bleu: float
    perplexity: float
    perplexity_per_char: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """One finished run. BLEU and perplexities are of the validation set, as in Table 3; those of
    the test set, where one was scored, begin with ``test_``. ``bleu`` is sacreBLEU's and
    ``tokenised_bleu`` the paper's way (:mod:`transformer.evaluation.bleu`); ``averaged`` is there where the
    configuration asks to score the mean of more checkpoints besides.

    ``perplexity`` is per word-piece and ``perplexity_per_char`` per character of the reference;
    ``parameters`` is the model's own count and ``parameters_paper_vocab`` the count at the 40,960
    rows that the paper's column fits. Tokens are real ones, padding left out, summed over all
    steps; ``corpus_target_tokens`` is what one epoch has, None in old results. ``flops`` is
    analytic and ``flops_nominal`` what Table 2 would say, None where the device has no nominal
    peak; ``train_seconds`` leaves preparation and evaluation out. ``finished_at`` is UTC.
    ``data_digest`` is that of the data's manifest; results from before it was noted have none.
    """

    experiment: str
    seed: int
    bleu: float
    bleu_signature: str
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


def score_lines(result: Result) -> list[str]:
    """What a person is told of a finished run: a line for each text and each signature."""
    lines = [_scores("valid", result.bleu, result.tokenised_bleu, result.perplexity)]
    if result.averaged is not None:
        mean = result.averaged
        scores = _scores("valid", mean.bleu, mean.tokenised_bleu, mean.perplexity)
        lines.append(f"{scores}  (mean of {mean.checkpoints} checkpoints)")
    if result.test_bleu is not None and result.test_perplexity is not None:
        scores = _scores(
            "test", result.test_bleu, result.test_tokenised_bleu, result.test_perplexity
        )
        lines.append(scores)
    lines.append(f"BLEU: {result.bleu_signature}")
    if result.tokenised_bleu_signature is not None:
        lines.append(f"tokenised BLEU: {result.tokenised_bleu_signature}")
    return lines


def _scores(name: str, bleu: float, tokenised_bleu: float | None, perplexity: float) -> str:
    tokenised = "" if tokenised_bleu is None else f"  tokenised BLEU {tokenised_bleu:.2f}"
    return f"{name:5}  BLEU {bleu:.2f}{tokenised}  perplexity {perplexity:.2f}"


def hypotheses_path(directory: Path, split: str) -> Path:
    """Where the run in ``directory`` leaves its translations of ``split``."""
    return directory / f"{split}.hypotheses.txt"


def load_result(directory: Path) -> Result | None:
    """The result of the run in ``directory``, or None if it has not finished.

    Raises:
        InputError: if the file cannot be read, or is of another version.
    """
    path = directory / RESULT_FILE
    if not path.is_file():
        return None
    values = read_json(path)
    try:
        return from_dict(Result, values, str(path))
    except InputError as error:
        raise InputError(f"{error}; remove the file, and the same command scores anew") from error


def save_result(directory: Path, result: Result) -> None:
    """Write the result atomically: from then on the run counts as finished."""
    write_json(directory / RESULT_FILE, to_dict(result))
