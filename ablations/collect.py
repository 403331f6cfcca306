"""Write ended runs as lines of ``runs.jsonl``."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ablations.files import replaced_name
from ablations.tables.plan_file import LOCK_FILE
from experiments.records.checksums import copied_files
from experiments.records.collection import CollectedRun, Collection
from experiments.records.experiment import DATA_FILE
from experiments.records.line import (
    ARCHIVES,
    DATA_FILES,
    IN_LINE,
    RUNS_FILE,
    Line,
    archive_name,
    curve_of,
    data_name,
)
from experiments.records.run import Run
from transformer.config import to_dict
from transformer.errors import InputError
from transformer.files import locked, read_bytes, read_json, to_json, write_atomically

_NO_ARCHIVE = "0" * 64  # until it is written
_MOST_BYTES = 500_000_000  # of a run's file


@dataclass(frozen=True, slots=True)
class _Packed:
    """A run's line, its ``data.json``, and the files that neither of them contains."""

    line: Line
    data: bytes
    others: Mapping[str, bytes]


def add_runs(target: Path, runs: Mapping[str, Run]) -> list[str]:
    """Add ``runs``, by name, to the collection in the folder ``target``.

    If a line of the same name has other files, it is kept under another name. After a kill at any
    moment the collection has either none of the new runs or all.

    Returns:
        The names of the runs that it did not have.
    """
    if not runs:
        return []
    with locked(target / LOCK_FILE):
        lines = Collection(target).lines
        packed = {name: _pack(name, run) for name, run in runs.items()}
        new = [
            name
            for name, run in packed.items()
            if name not in lines or lines[name].files != run.line.files
        ]
        if new:
            replaced = {name: replaced_name(name, lines) for name in new if name in lines}
            kept = _renamed(target, replaced)
            _write(target, kept | {name: packed[name] for name in new})
        return new


def rename_runs(there: Collection, names: Mapping[str, str]) -> None:
    """Give lines of a collection other names (old: new); the caller has locked its folder."""
    whole = {there.below + old: there.below + new for old, new in names.items()}
    _write(there.path, _renamed(there.path, whole))


def _renamed(target: Path, names: Mapping[str, str]) -> dict[str, _Packed]:
    """All runs of a collection, some of them renamed by ``names`` (old: new)."""
    there = Collection(target)
    new = {names.get(name, name): there.run(name) for name in there.lines}
    return {name: _pack(name, run) for name, run in new.items()}


def _pack(name: str, run: Run) -> _Packed:
    contents = {path.name: read_bytes(path, _MOST_BYTES) for path in copied_files(run.files)}
    files = {file: hashlib.sha256(each).hexdigest() for file, each in contents.items()}
    if isinstance(run, CollectedRun) and run.line.files != files:
        run.check()
        raise InputError(f"files of {run.directory} are missing in its archive: restore it")
    data = contents.pop(DATA_FILE, b"")
    fields: dict[str, Any] = {}
    for key, file in IN_LINE.items():
        if file in contents:
            with suppress(InputError):  # such as damaged samples; the archive has them as they are
                fields[key] = read_json(run.files / file)
    line = Line(
        name=name,
        curve=curve_of(run),
        data=files.get(DATA_FILE),
        files=files,
        archive=_NO_ARCHIVE,
        **fields,
    )
    for file, content in line.contents.items():
        if to_json(content).encode() == contents[file]:
            del contents[file]
    return _Packed(line, data, contents)


def _write(target: Path, runs: Mapping[str, _Packed]) -> None:
    """Write the new archive, then the lines that name it, and at last remove the old archive."""
    packed = [runs[name] for name in sorted(runs)]
    archive = _to_archive(packed)
    digest = hashlib.sha256(archive).hexdigest()
    write_atomically(target / archive_name(digest), archive)
    data = {data_name(run.line.data): run.data for run in packed if run.line.data is not None}
    for name, content in data.items():
        if not (target / name).exists():
            write_atomically(target / name, content)
    lines = (to_dict(replace(run.line, archive=digest)) for run in packed)
    write_atomically(target / RUNS_FILE, "".join(to_json(line, indent=None) for line in lines))
    for path in [*target.glob(ARCHIVES), *target.glob(DATA_FILES)]:
        if path.name != archive_name(digest) and path.name not in data:
            path.unlink()


def _to_archive(packed: Sequence[_Packed]) -> bytes:
    """The archive of the runs' other files, byte for byte the same at each call. Files of the same
    name are next to each other, since similar files compress well together.
    """
    members = {
        (file, run.line.name): content for run in packed for file, content in run.others.items()
    }
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:xz") as files:
        for (file, name), content in sorted(members.items()):
            member = tarfile.TarInfo(f"{name}/{file}")
            member.size = len(content)
            files.addfile(member, io.BytesIO(content))
    return archive.getvalue()
