"""The commit and package versions of a result."""

from __future__ import annotations

import functools
import platform
import subprocess
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

COMMIT_FILE = "commit.txt"  # beside this file, in a wheel
_PACKAGES = ("torch", "lightning", "sentencepiece", "sacrebleu", "sacremoses", "optuna", "wandb")


@functools.cache
def commit() -> str:
    """The commit of this project, with ``-dirty`` if files differ from it; or ``unknown``.

    It is asked of git, or read from the file that setup.py adds to a wheel.
    """
    try:
        _git("ls-files", "--error-unmatch", Path(__file__).name)  # fails in another repository
        found = _git("status", "--porcelain=v2", "--branch", "--untracked-files=no")
    except (OSError, subprocess.SubprocessError):
        built = Path(__file__).with_name(COMMIT_FILE)
        return built.read_text("utf-8").strip() if built.is_file() else "unknown"
    (first, *lines) = found.splitlines()
    is_dirty = any(not line.startswith("#") for line in lines)
    return first.removeprefix("# branch.oid ")[:12] + ("-dirty" if is_dirty else "")


def _git(*words: str) -> str:
    # A run killed here would leave a lock behind, and the user's repository refuse to commit.
    return subprocess.run(
        ["git", "--no-optional-locks", *words],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        errors="replace",  # a branch may have any name
        timeout=10,
        check=True,
    ).stdout


def versions() -> dict[str, str]:
    """Versions of Python and of the packages on which results depend."""
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        with suppress(PackageNotFoundError):  # tests/gpu needs only the first two
            found[name] = version(name)
    return found
