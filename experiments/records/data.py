"""The data that a run started with."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from experiments.records.experiment import DATA_FILE, load_experiment
from transformer.config import text_settings, to_dict
from transformer.corpus import Corpus
from transformer.data.fetch.cache import sha256_of
from transformer.data.prepared import (
    VOCABULARY_FILE,
    Manifest,
    PreparedCorpus,
    read_manifest,
    refuse_changed,
)
from transformer.data.vocabulary import Vocabulary
from transformer.errors import BlockedError, InputError
from transformer.files import check_plain, write_atomically, write_json


def recorded_data(directory: Path) -> Manifest | None:
    """The data that the run in ``directory`` started with; None before its first step."""
    path = directory / DATA_FILE
    try:
        return read_manifest(path) if path.exists() else None
    except InputError as error:
        raise BlockedError(str(error)) from error


def record_data(directory: Path, corpus: PreparedCorpus) -> None:
    """Record which data the run uses, and copy its vocabulary."""
    if not (directory / DATA_FILE).exists():
        write_json(directory / DATA_FILE, to_dict(corpus.manifest))
    write_atomically(directory / VOCABULARY_FILE, corpus.vocabulary_file.read_bytes())


def check_text(directory: Path, corpus: Corpus) -> None:
    """Check that the user's files, where they still are, are those that the run started with."""
    recorded = recorded_data(directory)
    before = [] if recorded is None else [sha256 for _, sha256 in recorded.sources]
    there = (
        (file, Path(file.location), sha256)
        for file, sha256 in zip(corpus.files, before, strict=False)
        if file.is_path and file.member is None
    )
    refuse_changed(
        [file.name for file, path, x in there if path.is_file() and sha256_of(path) != x]
    )


def share_data(directory: Path, others: Iterable[Path]) -> None:
    """Give a run that has not recorded its data the record of another run with the same corpus and
    settings, so that their scores can be compared. The first of ``others`` that has one counts.
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
    check_plain(path)
    if recorded and path.exists() and sha256_of(path) != recorded.files[VOCABULARY_FILE].sha256:
        raise InputError(
            f"{path} is not the vocabulary that the run was trained with: restore it from "
            "the prepared corpus, whose folder python -m experiments prepare prints"
        )
    return Vocabulary(path)
