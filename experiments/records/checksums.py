"""``data.json`` and ``SHA256SUMS``: checksums of a run's data and files."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from experiments.records.experiment import CHECKPOINTS, CONFIG_FILE, DATA_FILE, load_experiment
from experiments.records.outputs import METRICS_FILE
from experiments.records.result import RESULT_FILE, Result, content_of
from transformer.config import text_settings, to_dict
from transformer.data.fetch.cache import sha256_of
from transformer.data.prepared import VOCABULARY_FILE, Manifest, PreparedCorpus, read_manifest
from transformer.data.vocabulary import Vocabulary
from transformer.errors import InputError
from transformer.files import write_atomically, write_json

SUMS_FILE = "SHA256SUMS"
# Files that no later command writes: not the log, the progress, attempts, exports or W&B's files.
_RECORDED = (
    CONFIG_FILE,
    DATA_FILE,
    METRICS_FILE,
    "*.model",
    "*.hypotheses.txt",
    "*.samples.json",
    f"{CHECKPOINTS}/*.ckpt",
)


def recorded_data(directory: Path) -> Manifest | None:
    """The data that the run in ``directory`` started with; None before its first step."""
    path = directory / DATA_FILE
    return read_manifest(path) if path.exists() else None


def record_data(directory: Path, corpus: PreparedCorpus) -> None:
    """Record which data the run uses, and copy its vocabulary."""
    if not (directory / DATA_FILE).exists():
        write_json(directory / DATA_FILE, to_dict(corpus.manifest))
    write_atomically(directory / VOCABULARY_FILE, corpus.vocabulary_file.read_bytes())


def share_data(directory: Path, others: Iterable[Path]) -> None:
    """Give a run that has not recorded its data the record of the first of the other runs with the
    same corpus and settings, so that their figures can be compared.
    """
    if (directory / DATA_FILE).exists():
        return
    ours = text_settings(load_experiment(directory).config)
    for other in others:
        with suppress(InputError):  # damaged, or not started
            recorded = recorded_data(other)
            if recorded is not None and text_settings(load_experiment(other).config) == ours:
                write_json(directory / DATA_FILE, to_dict(recorded))
                return


def run_vocabulary(directory: Path) -> Vocabulary:
    """The vocabulary of the run, or of the export, in ``directory``."""
    path, recorded = directory / VOCABULARY_FILE, recorded_data(directory)
    if recorded and path.exists() and sha256_of(path) != recorded.files[VOCABULARY_FILE].sha256:
        raise InputError(
            f"{path} is not the vocabulary that the run was trained with: restore it from "
            "the prepared corpus, whose folder python -m experiments prepare prints"
        )
    return Vocabulary(path)


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
