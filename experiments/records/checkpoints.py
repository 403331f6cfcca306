"""Find the checkpoints of a run."""

from __future__ import annotations

import re
import warnings
import zipfile
from pathlib import Path

from experiments.records.experiment import CHECKPOINTS
from transformer.files import rename

# "-stop" marks one written at a stop or at the end, between two of the regular interval.
_STEP_FILE = re.compile(r"step-(\d+)(-stop)?\.ckpt")


def step_checkpoints(directory: Path) -> list[tuple[int, Path]]:
    """The checkpoints of the run in ``directory`` by step, oldest first."""
    found = [
        (_STEP_FILE.fullmatch(p.name), p) for p in (directory / CHECKPOINTS).glob("step-*.ckpt")
    ]
    return sorted((int(match[1]), path) for match, path in found if match)


def is_regular(path: Path) -> bool:
    """Whether it was written at the regular interval, not at a stop."""
    return not path.stem.endswith("-stop")


def newest_sound(directory: Path) -> tuple[int, Path] | None:
    """The newest checkpoint that can be read, and its step.

    Damaged ones that are newer are renamed, with a warning.
    """
    found = step_checkpoints(directory)
    while found:
        step, path = found.pop()
        if is_sound(path):
            return step, path
        rename(path, path.with_name(f"{path.name}.damaged"))
        then = "continuing from the one before it" if found else "starting over"
        warnings.warn(f"{path} is damaged: {then}", stacklevel=2)
    return None


def to_average(directory: Path, count: int) -> list[Path]:
    """The last ``count`` checkpoints among those of the regular interval and the very last one.

    Those written when the run was stopped are left out, so that the average does not depend on how
    often it was.
    """
    sound = [path for _, path in step_checkpoints(directory) if is_sound(path)]
    return [path for path in sound if is_regular(path) or path == sound[-1]][-count:]


def is_sound(path: Path) -> bool:
    """Whether a checkpoint can be read."""
    import torch

    try:
        with zipfile.ZipFile(path) as archive:
            if archive.testzip() is not None:
                return False
        # The checksums may hold and torch still refuse the list of contents.
        torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        return True
    except Exception:  # a damaged byte makes zipfile and torch raise almost anything
        return False
