"""Runs that ended, as lines of ``runs.jsonl`` and an archive.

Beside ``runs.jsonl`` are each distinct ``data.json``, as ``data-SHA256.json``, and an archive
``files-SHA256.tar.xz`` of all files that the lines do not contain.
"""

from __future__ import annotations

import atexit
import hashlib
import lzma
import shutil
import tarfile
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from experiments.records.checksums import CHANGED, problem_of
from experiments.records.experiment import CONFIG_FILE, DATA_FILE, Experiment
from experiments.records.line import (
    ARCHIVES,
    DATA_FILES,
    RUNS_FILE,
    Line,
    archive_name,
    curve_of,
    data_name,
    read_lines,
)
from experiments.records.outputs import Sample, to_samples
from experiments.records.progress import RunState
from experiments.records.result import Result
from experiments.records.run import Pruned, Run
from transformer.config import from_dict
from transformer.data.fetch.cache import sha256_of
from transformer.errors import InputError
from transformer.files import making, parse_json, read_bytes, to_json

_UNPACKING = threading.Lock()
_MOST_UNPACKED = 500  # unpacked size over the archive's; the committed ones have 5 to 10


class Collection:
    """The lines of the folder ``path``, and the files that its runs had.

    Args:
        path: a folder; without a ``runs.jsonl`` it has no lines
        below: only the runs whose names begin with this, such as ``confirm/``

    Raises:
        InputError: if a line cannot be read.
    """

    def __init__(self, path: Path, below: str = "") -> None:
        self.path, self.below = path, below
        self._problems: dict[tuple[str, str], str] = {}  # by a file's name and checksum

    @cached_property
    def lines(self) -> Mapping[str, Line]:
        """Each line by the name of its run without ``below``."""
        found = {line.name: line for line in read_lines(self.path / RUNS_FILE)}
        return {
            name.removeprefix(self.below): line
            for name, line in found.items()
            if name.startswith(self.below)
        }

    def run(self, name: str) -> CollectedRun:
        """The run of a line."""
        line = self.lines[name]
        where = f"{self.path / RUNS_FILE}, {line.name}"
        result, pruned = None, None
        if line.result is not None:
            result = from_dict(Result, line.result, where, strict=False)
        elif line.pruned is not None:
            pruned = from_dict(Pruned, line.pruned, where)
        return CollectedRun(
            name=name,
            directory=self.path / line.name,
            state=RunState.PRUNED if line.result is None else RunState.DONE,
            result=result,
            pruned=pruned,
            line=line,
            collection=self,
        )

    def check(self, line: Line) -> None:
        """Check that a line, its data and the archive are as they were collected.

        Raises:
            InputError: if not.
        """
        problems = [
            f"{self.path / file} {problem}"
            for file, problem in self._shared_files(line).items()
            if problem
        ]
        for name, content in line.contents.items():
            if _sha256(to_json(content).encode()) == line.files.get(name):
                continue
            # The archive is opened only if nothing is wrong so far.
            if problems or not self._has_other_form(line, name):
                problems.append(f"{name} of {line.name} in {self.path / RUNS_FILE} {CHANGED}")
        if problems:
            raise InputError(f"{'; '.join(problems)}: restore it")

    def _has_other_form(self, line: Line, name: str) -> bool:
        """Whether the archive has the same content in another formatting than ours."""
        path = self.unpacked / line.name / name
        if not path.is_file() or sha256_of(path) != line.files.get(name):
            return False
        return parse_json(read_bytes(path), path) == line.contents[name]

    def _shared_files(self, line: Line) -> dict[str, str]:
        """The files that a line shares with others, and what is wrong with each."""
        wanted = {archive_name(line.archive): line.archive}
        if line.data is not None:
            wanted[data_name(line.data)] = line.data
        return {name: self._problem(name, sha256) for name, sha256 in wanted.items()}

    def _problem(self, name: str, sha256: str) -> str:
        if (name, sha256) not in self._problems:
            self._problems[name, sha256] = problem_of(self.path / name, sha256)
        return self._problems[name, sha256]

    def verify(self, line: Line) -> Iterator[tuple[Path, str]]:
        """Each file of a run, and what is wrong with it; empty if nothing is."""
        yield from ((self.path / name, text) for name, text in self._shared_files(line).items())
        directory = self.unpacked / line.name
        for name, sha256 in line.files.items():
            path = directory / name
            problem = problem_of(path, sha256)
            if not problem and name in line.contents:
                is_same = parse_json(read_bytes(path), path) == line.contents[name]
                problem = "" if is_same else CHANGED
            yield self.path / line.name / name, problem
        run = Run(name=line.name, directory=directory)
        if to_json(line.curve) != to_json(curve_of(run)):
            yield self.path / line.name, f"its curve in {RUNS_FILE} {CHANGED}"

    @cached_property
    def unpacked(self) -> Path:
        """A folder with the files of all runs, each in a folder of its name, until this process
        ends.
        """
        patterns = (RUNS_FILE, ARCHIVES, DATA_FILES)
        files = [path for pattern in patterns for path in sorted(self.path.glob(pattern))]
        versions = [(path, path.lstat().st_ino, path.lstat().st_mtime_ns) for path in files]
        folder = _temporary() / _sha256(f"{self.path.resolve()} {self.below} {versions}".encode())
        with _UNPACKING:  # supervisors of a driver, each in a thread, read the same collection
            if not folder.is_dir():
                with making(folder) as part:
                    part.mkdir()
                    self._write_files(part)
        return folder

    def _write_files(self, into: Path) -> None:
        for line in self.lines.values():
            directory = into / line.name
            directory.mkdir(parents=True)
            for name, content in line.contents.items():
                (directory / name).write_bytes(to_json(content).encode())
            if line.data is not None and not self._problem(data_name(line.data), line.data):
                data = read_bytes(self.path / data_name(line.data))
                (directory / DATA_FILE).write_bytes(data)
        for sha256 in {line.archive for line in self.lines.values()}:
            if not self._problem(archive_name(sha256), sha256):
                self._unpack(self.path / archive_name(sha256), into)

    def _unpack(self, archive: Path, into: Path) -> None:
        """Unpack those files of the archive that a line names."""
        wanted = {f"{x.name}/{file}" for x in self.lines.values() for file in x.files}
        left = _MOST_UNPACKED * archive.stat().st_size
        try:
            with tarfile.open(archive, "r|xz") as files:
                for member in files:
                    left -= member.size
                    if left < 0:
                        raise InputError(f"{archive} has more than {_MOST_UNPACKED} times its size")
                    content = files.extractfile(member) if member.isreg() else None
                    if member.name in wanted and content is not None:
                        (into / member.name).write_bytes(content.read())
        except (tarfile.TarError, lzma.LZMAError, EOFError) as error:
            raise InputError(f"{archive} cannot be unpacked ({error}): restore it") from error


@dataclass(frozen=True, kw_only=True)
class CollectedRun(Run):
    """A run that is a line of a collection."""

    line: Line
    collection: Collection

    @property
    def files(self) -> Path:
        return self.collection.unpacked / self.line.name

    @cached_property
    def experiment(self) -> Experiment | None:
        where = str(self.directory / CONFIG_FILE)
        return None if self.line.config is None else from_dict(Experiment, self.line.config, where)

    @cached_property
    def source(self) -> Mapping[str, Any] | None:
        return self.line.source

    @cached_property
    def source_places(self) -> Mapping[str, Any]:
        return {}

    @property
    def curve(self) -> dict[int, float]:
        return {int(step): value for step, value in self.line.curve.items()}

    @cached_property
    def samples(self) -> Sequence[Sample]:
        return to_samples(self.line.valid_samples, str(self.directory))

    @property
    def process(self) -> str:
        return ""

    def log(self, count: int) -> list[str]:
        return []

    def check(self) -> None:
        self.collection.check(self.line)

    def verify(self) -> Iterator[tuple[Path, str]]:
        return self.collection.verify(self.line)


@cache
def _temporary() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="runs-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
