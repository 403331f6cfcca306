"""Checkpoints, ``metrics.csv``, ``speed.csv``, translations and samples."""

from __future__ import annotations

import errno
import re
import warnings
import zipfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.records.experiment import CHECKPOINTS
from transformer.config import from_dict
from transformer.errors import InputError
from transformer.files import check_plain, read_bytes, read_json, rename, within

METRICS_FILE = "metrics.csv"
SPEED_FILE = "speed.csv"  # apart, as everything in metrics.csv is the same on each machine
TRAINING_COLUMNS: tuple[str, ...] = ("loss", "train_perplexity", "learning_rate", "gradient_norm")
VALIDATION_COLUMNS: tuple[str, ...] = ("valid_loss", "valid_perplexity")
COLUMNS: tuple[str, ...] = ("step", *TRAINING_COLUMNS, *VALIDATION_COLUMNS)
SPEED_COLUMNS: tuple[str, ...] = ("step", "tokens_per_second")

_NUMBER = r"-?(\d{1,20}(\.\d{1,20})?(e[-+]\d{1,3})?|inf|nan)"
_LINE = r"\d{{1,15}}(,({number})?){{{count}}}"
_MOST_WEIGHTS = 2**36  # bytes of a checkpoint
_MOST_BYTES = 64_000_000  # of metrics, which some runs log at every step
# "-stop" marks a checkpoint that was written at a stop or at the end, between two regular ones.
_CHECKPOINT = re.compile(r"step-(\d+)(-stop)?\.ckpt")
# The errno of an OSError that means damage: zipfile's own have none, and a wrong offset or a bad
# sector gives one of the others.
_OF_DAMAGE = (None, errno.EINVAL, errno.EIO, errno.ENOENT)
# torch's reader, which may refuse the list of contents although the checksums hold.
_OF_CONTENTS = "PytorchStreamReader"


def step_checkpoints(directory: Path) -> list[tuple[int, Path]]:
    """The checkpoints of the run in ``directory`` by step, oldest first."""
    found: list[tuple[int, Path]] = []
    for path in within(directory, CHECKPOINTS).glob("step-*.ckpt"):
        if match := _CHECKPOINT.fullmatch(path.name):
            check_plain(path, _MOST_WEIGHTS)
            found.append((int(match[1]), path))
    return sorted(found)


def is_regular(checkpoint: Path) -> bool:
    """Whether a checkpoint was written at the regular interval, not at a stop."""
    return not checkpoint.stem.endswith("-stop")


def newest_sound(directory: Path) -> tuple[int, Path] | None:
    """The newest checkpoint that can be read, and its step; newer, damaged ones are renamed, with a
    warning.
    """
    found = step_checkpoints(directory)
    while found:
        step, path = found.pop()
        if _is_sound(path):
            return step, path
        with suppress(FileNotFoundError):  # another rank was first
            rename(path, path.with_name(f"{path.name}.damaged"))
        then = "continuing from the one before it" if found else "starting over"
        warnings.warn(f"{path} is damaged: {then}", stacklevel=2)
    return None


def to_average(directory: Path, count: int) -> list[Path]:
    """The last ``count`` checkpoints among the regular ones and the very last one.

    Those that were written at earlier stops are left out, so that the average does not depend on
    how often the run was stopped.
    """
    found: list[Path] = []
    for _, path in reversed(step_checkpoints(directory)):
        if len(found) < count and (is_regular(path) or not found) and _is_sound(path):
            found.insert(0, path)
    return found


def _is_sound(checkpoint: Path) -> bool:
    """Whether a checkpoint is as it was written.

    Raises:
        InputError: if it is, but this torch does not read it.
    """
    import torch

    is_whole = False
    try:
        is_whole = is_whole_file(checkpoint)
        if is_whole:
            torch.load(checkpoint, map_location="cpu", weights_only=True, mmap=True)
        return is_whole
    except Exception as error:  # a damaged byte makes zipfile and torch raise almost anything
        no_memory = isinstance(error, MemoryError) or "annot allocate memory" in str(error)
        if no_memory or (isinstance(error, OSError) and error.errno not in _OF_DAMAGE):
            raise  # lack of memory or of rights, or a file server that is away: no damage
        if is_whole and not isinstance(error, OSError) and _OF_CONTENTS not in str(error):
            reason = str(error).rpartition("WeightsUnpickler error: ")[2].split(". ")[0].strip()
            raise InputError(
                f"{checkpoint} is not damaged, but torch {torch.__version__} does not read it "
                f"({reason or type(error).__name__}): use the version of torch that wrote it"
            ) from error
        return False


def is_whole_file(checkpoint: Path) -> bool:
    """Whether the checksums within a checkpoint hold.

    Raises:
        Exception: of almost any kind, if it is damaged.
    """
    with zipfile.ZipFile(checkpoint) as archive:
        return archive.testzip() is None


def hypotheses_path(directory: Path, split: str) -> Path:
    """Where the run in ``directory`` writes its translations of ``split``."""
    return directory / f"{split}.hypotheses.txt"


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """A translation, and how much of it is in the reference: sentence chrF in per cent."""

    chrf: float
    source: str
    reference: str
    translation: str


@dataclass(frozen=True, slots=True)
class _Samples:
    samples: tuple[Sample, ...]


def samples_path(directory: Path, split: str) -> Path:
    """Where the run in ``directory`` writes its best and worst translations of ``split``."""
    return directory / f"{split}.samples.json"


def read_samples(directory: Path, split: str) -> list[Sample]:
    """The best and worst translations of ``split``, best first; empty if there are none."""
    path = samples_path(directory, split)
    return to_samples(read_json(path) if path.is_file() else None, str(path))


def to_samples(content: dict[str, Any] | None, where: str) -> list[Sample]:
    """The samples in the content of their file; none without a file."""
    return [] if content is None else list(from_dict(_Samples, content, where).samples)


def read_metrics(directory: Path) -> list[list[str]]:
    """The fields of each line of ``metrics.csv`` below the header; none without the file."""
    return _read_lines(directory / METRICS_FILE, COLUMNS)


def read_speeds(directory: Path) -> list[list[str]]:
    """The fields of each line of ``speed.csv`` below the header; none without the file."""
    return _read_lines(directory / SPEED_FILE, SPEED_COLUMNS)


def _read_lines(path: Path, columns: tuple[str, ...]) -> list[list[str]]:
    """The fields of each line of numbers under these ``columns``.

    Lines that a full disk or a power cut damaged, or that are still being written, are left out.
    """
    try:
        content = read_bytes(path, _MOST_BYTES).decode(errors="replace")
    except FileNotFoundError:
        return []
    numbers = re.compile(_LINE.format(number=_NUMBER, count=len(columns) - 1))
    *whole, _ = content.split("\n")
    lines = (line.rstrip("\r") for line in whole)
    return [line.split(",") for line in lines if numbers.fullmatch(line)]
