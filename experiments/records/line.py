"""A run that ended, as a line of ``runs.jsonl``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from experiments.records.experiment import CONFIG_FILE, SOURCE_FILE
from experiments.records.outputs import samples_path
from experiments.records.result import PRUNED_FILE, RESULT_FILE
from experiments.records.run import Run
from transformer.config import from_dict
from transformer.errors import InputError
from transformer.files import open_plain, parse_json

RUNS_FILE = "runs.jsonl"
ARCHIVES = "files-*.tar.xz"
DATA_FILES = "data-*.json"
_DIGITS = 16  # of a sha256 in a name
_NAME = re.compile(r"(?!\.)[\w.-]+(/(?!\.)[\w.-]+){0,3}", re.ASCII)
_SHA256 = re.compile(r"[0-9a-f]{64}")
_STEP = re.compile(r"[0-9]{1,20}")
_MOST_LINE = 16_000_000  # bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """A run that ended, as a line of ``runs.jsonl``.

    ``config``, ``result``, ``pruned``, ``source`` and the samples are the content of its files of
    these names. ``curve`` is the perplexity on the validation set by step. ``data`` is the sha256
    of its ``data.json``, ``files`` that of each of its files, and ``archive`` that of the archive.
    """

    name: str
    config: dict[str, Any] | None = None
    result: dict[str, Any] | None = None
    pruned: dict[str, Any] | None = None
    source: dict[str, Any] | None = None
    curve: dict[str, float] = field(default_factory=dict[str, float])
    valid_samples: dict[str, Any] | None = None
    test_samples: dict[str, Any] | None = None
    data: str | None = None
    files: dict[str, str] = field(default_factory=dict[str, str])
    archive: str

    def __post_init__(self) -> None:
        for name in (self.name, *self.files):
            if not _NAME.fullmatch(name):
                raise ValueError(f"{name!r} is not a name of a run or a file")
        for sha256 in (self.archive, self.data, *self.files.values()):
            if sha256 is not None and not _SHA256.fullmatch(sha256):
                raise ValueError(f"{sha256!r} is not a sha256")
        if not all(_STEP.fullmatch(step) for step in self.curve):
            raise ValueError("its curve has a step that is not a number")
        if self.result is None and self.pruned is None:
            raise ValueError("it needs a result, or the step at which it was pruned")

    @property
    def contents(self) -> dict[str, dict[str, Any]]:
        """The content of each JSON file that the line contains."""
        found = {name: getattr(self, key) for key, name in IN_LINE.items()}
        return {name: content for name, content in found.items() if content is not None}


# The file of each field of a line.
IN_LINE = {
    "config": CONFIG_FILE,
    "result": RESULT_FILE,
    "pruned": PRUNED_FILE,
    "source": SOURCE_FILE,
    "valid_samples": samples_path(Path(), "valid").name,
    "test_samples": samples_path(Path(), "test").name,
}


def archive_name(sha256: str) -> str:
    """The name of the archive with this checksum."""
    return ARCHIVES.replace("*", sha256[:_DIGITS])


def data_name(sha256: str) -> str:
    """The name of the ``data.json`` with this checksum."""
    return DATA_FILES.replace("*", sha256[:_DIGITS])


def curve_of(run: Run) -> dict[str, float]:
    """The perplexity on the validation set by step, as a line has it."""
    return {str(step): value for step, value in run.curve.items()}


def read_lines(path: Path) -> Iterator[Line]:
    """The lines of a ``runs.jsonl``; none without a file.

    Raises:
        InputError: if one cannot be read.
    """
    if not path.is_file():
        return
    with open_plain(path) as file:
        for number, text in enumerate(iter(lambda: file.readline(_MOST_LINE), b""), 1):
            where = f"{path}, line {number}"
            try:
                yield from_dict(Line, parse_json(text, where), where)
            except InputError as error:
                raise InputError(f"{error}: restore the file") from error
