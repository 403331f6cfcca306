"""``SHA256SUMS``: checksums of a finished run's files."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from experiments.records.experiment import CHECKPOINTS, CONFIG_FILE, DATA_FILE, SOURCE_FILE
from experiments.records.outputs import METRICS_FILE, step_checkpoints
from experiments.records.result import (
    PRUNED_FILE,
    RESULT_FILE,
    Result,
    content_of,
    load_result,
    save_result,
)
from transformer.data.fetch.cache import sha256_of
from transformer.errors import InputError
from transformer.files import check_plain, read_text, within, write_atomically

SUMS_FILE = "SHA256SUMS"
_MOST_BYTES = 2**36  # of a file: a larger one is refused rather than read for many minutes
# Files that no later command writes: not the log, the progress, attempts, exports or W&B's files.
RECORDS = (
    *(CONFIG_FILE, DATA_FILE, SOURCE_FILE, METRICS_FILE),
    *("*.hypotheses.txt", "*.samples.json"),
)
# Translations of averaged checkpoints, which earlier versions wrote and copies leave out.
_AVERAGED = "valid-averaged."
MISSING = "missing, but was there when the run finished"
CHANGED = "changed since the run finished"
_RECORDED = (*RECORDS, "*.model", f"{CHECKPOINTS}/*.ckpt")


def record_checksums(directory: Path, result: Result) -> Result:
    """Record the checksums of a run's files, and of the result that is to be saved next.

    Returns:
        That result: ``result`` with the digest of the other checksums.
    """
    paths = sorted(path for pattern in _RECORDED for path in directory.glob(pattern))
    for path in paths:
        check_plain(path, _MOST_BYTES)
    sums = {path.relative_to(directory).as_posix(): sha256_of(path) for path in paths}
    result = replace(result, files_digest=_digest(sums))
    _write_sums(directory, sums, result)
    return result


def save_rescored(directory: Path, result: Result) -> None:
    """Save the result of a finished run with new scores; its other files are unchanged."""
    if sums := read_checksums(directory):
        _write_sums(directory, sums, result)
    save_result(directory, result)


def _write_sums(directory: Path, sums: Mapping[str, str], result: Result) -> None:
    sums = {**sums, RESULT_FILE: hashlib.sha256(content_of(result)).hexdigest()}
    write_atomically(directory / SUMS_FILE, "".join(_lines(sums)))


def _lines(sums: Mapping[str, str]) -> list[str]:
    return [f"{sum_}  {name}\n" for name, sum_ in sums.items()]


def _digest(sums: Mapping[str, str]) -> str:
    """The sha256 of the sorted lines of all files but the result."""
    others = {name: sum_ for name, sum_ in sums.items() if name != RESULT_FILE}
    return hashlib.sha256("".join(sorted(_lines(others))).encode()).hexdigest()


def read_checksums(directory: Path) -> dict[str, str]:
    """The checksum of each file of a finished run; empty if it has none, or has not finished.

    Raises:
        InputError: if they are damaged, or not those that the result was saved with.
    """
    path, result = directory / SUMS_FILE, load_result(directory)
    if not path.is_file() or result is None:
        return {}
    lines = read_text(path).splitlines()
    sums = {name: sum_ for sum_, _, name in (line.partition("  ") for line in lines)}
    if RESULT_FILE not in sums or result.files_digest not in (None, _digest(sums)):
        raise InputError(f"{path} is damaged: restore it, or delete it to do without the check")
    return sums


def problem_of(path: Path, sha256: str) -> str:
    """What is wrong with a file that had this checksum; empty if nothing is."""
    if not path.is_file():
        return MISSING
    if path.stat().st_size > _MOST_BYTES:
        return "too large for a file of a run"
    return "" if sha256_of(path) == sha256 else CHANGED


def verify_files(directory: Path) -> Iterator[tuple[Path, str]]:
    """Each file of a finished run, and what is wrong with it; empty if nothing is.

    Checkpoints that were added since, and would be read, are included.
    """
    sums, result = read_checksums(directory), load_result(directory)
    if not sums and result is not None and result.files_digest is not None:
        yield directory / SUMS_FILE, MISSING
    left_out = not_copied(directory, sums)
    for name, sha256 in sums.items():
        if name not in left_out:
            path = within(directory, name)
            yield path, problem_of(path, sha256)
    for _, path in step_checkpoints(directory) if sums else ():
        if path.relative_to(directory).as_posix() not in sums:
            yield path, "was not there when the run finished, but would be read: remove it"


def check_all_files(directory: Path) -> None:
    """Check every file of a finished run.

    Raises:
        InputError: if one changed.
    """
    if problems := [f"{path} {problem}" for path, problem in verify_files(directory) if problem]:
        raise InputError("; ".join(problems))


def not_copied(directory: Path, sums: Mapping[str, str]) -> list[str]:
    """The files of ``sums`` that ``directory`` may lack because it is a copy.

    If it has any checkpoint or vocabulary, which copies leave out, it is the original.
    """
    averaged = [name for name in sums if name.startswith(_AVERAGED)]
    missing = [name for name in averaged if not (directory / name).exists()]
    copied = (*RECORDS, RESULT_FILE)
    others = [name for name in sums if not any(Path(name).match(pattern) for pattern in copied)]
    is_original = any((directory / name).exists() for name in others)
    return missing if is_original else [*missing, *others]


def copied_files(directory: Path) -> list[Path]:
    """The files of an ended run that a copy of it has."""
    patterns = (*RECORDS, RESULT_FILE, PRUNED_FILE, SUMS_FILE)
    found = {path for pattern in patterns for path in directory.glob(pattern)}
    return sorted(path for path in found if not path.name.startswith(_AVERAGED))


def check_unchanged(directory: Path) -> None:
    """Check the files of a finished run that tables are made from, all but its checkpoints."""
    sums = read_checksums(directory)
    left_out = not_copied(directory, sums)
    problems: list[str] = []
    for name, sha256 in sums.items():
        if name not in left_out and not name.startswith(f"{CHECKPOINTS}/"):
            path = within(directory, name)
            if problem := problem_of(path, sha256):
                problems.append(f"{path} {problem}")
    if problems:
        raise InputError(
            f"{'; '.join(problems)}: restore it, or remove the run's directory and start it again"
        )
