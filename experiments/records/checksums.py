"""``SHA256SUMS``: checksums of a finished run's files."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from experiments.records.experiment import CHECKPOINTS, CONFIG_FILE, DATA_FILE
from experiments.records.outputs import METRICS_FILE
from experiments.records.result import RESULT_FILE, Result, content_of
from transformer.data.fetch.cache import sha256_of
from transformer.errors import InputError
from transformer.files import write_atomically

SUMS_FILE = "SHA256SUMS"
# Files that no later command writes: not the log, the progress, attempts, exports or W&B's files.
RECORDS = (CONFIG_FILE, DATA_FILE, METRICS_FILE, "*.hypotheses.txt", "*.samples.json")
_RECORDED = (*RECORDS, "*.model", f"{CHECKPOINTS}/*.ckpt")


def record_checksums(directory: Path, result: Result) -> None:
    """Record the checksums of a run's files, with the ``result`` that is saved next."""
    paths = sorted(path for pattern in _RECORDED for path in directory.glob(pattern))
    sums = {path.relative_to(directory).as_posix(): sha256_of(path) for path in paths}
    write_checksums(directory, sums | {RESULT_FILE: hashlib.sha256(content_of(result)).hexdigest()})


def write_checksums(directory: Path, sums: Mapping[str, str]) -> None:
    """Write the checksums of files, by their paths in ``directory``."""
    lines = (f"{sum_}  {name}\n" for name, sum_ in sums.items())
    write_atomically(directory / SUMS_FILE, "".join(lines))


def read_checksums(directory: Path) -> dict[str, str]:
    """The checksum of each file of a finished run; empty if it has none, or has not finished."""
    path = directory / SUMS_FILE
    if not path.is_file() or not (directory / RESULT_FILE).is_file():
        return {}
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    sums = {name: sum_ for sum_, _, name in (line.partition("  ") for line in lines)}
    if RESULT_FILE not in sums:
        raise InputError(f"{path} is damaged: restore it, or delete it to do without the check")
    return sums


def check_files(directory: Path, sums: Mapping[str, str]) -> Iterator[tuple[Path, str]]:
    """Each file, and what is wrong with it; empty if nothing is."""
    for name, expected in sums.items():
        path = directory / name
        if not path.is_file():
            yield path, "missing, but was there when the run finished"
        else:
            yield path, "" if sha256_of(path) == expected else "changed since the run finished"


def check_unchanged(directory: Path) -> None:
    """Check the files of a finished run that tables are made from, all but its checkpoints."""
    sums = read_checksums(directory)
    small = {name: x for name, x in sums.items() if not name.startswith(f"{CHECKPOINTS}/")}
    problems = [f"{path} {problem}" for path, problem in check_files(directory, small) if problem]
    if problems:
        raise InputError(
            f"{'; '.join(problems)}: restore it, or remove the run's directory and start it again"
        )
