"""Files written chunk by chunk, of which a kill at any moment loses at most one chunk."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from io import FileIO
from pathlib import Path
from typing import Any

from transformer.files import parse_json

Record = dict[str, Any]


class Journal:
    """Some files, and a line of JSON for each chunk that has been written to them completely.

    The line is written after the files are synced. Anything after the last recorded chunk, left by
    a kill or a full disk, is truncated when the journal is closed or opened, so the next chunk is
    written in its place.

    Args:
        path: of the journal
        files: each receives its part of every chunk

    Attributes:
        records: the caller's record of each chunk
        sizes: the size of each file after each chunk
        is_complete: whether all chunks have been written
    """

    def __init__(self, path: Path, files: Sequence[Path]) -> None:
        self.records: list[Record] = []
        self.sizes: list[list[int]] = []
        self.is_complete = False
        self._path, self._files = path, files
        self._read()
        self._outputs = [
            _open(file, size) for file, size in zip(files, self._last_sizes(), strict=True)
        ]
        self._lines = _open(path, self._intact)

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        for output, size in zip(self._outputs, self._last_sizes(), strict=True):
            output.truncate(size)
            output.close()
        self._lines.truncate(self._intact)
        self._lines.close()

    def append(self, parts: Sequence[bytes], record: Record) -> None:
        """Add a chunk: one part per file, and a record of it."""
        for output, part in zip(self._outputs, parts, strict=True):
            _write(output, part)
        sizes = [old + len(part) for old, part in zip(self._last_sizes(), parts, strict=True)]
        self._add({"sizes": sizes, "record": record})
        self.sizes.append(sizes)
        self.records.append(record)

    def complete(self) -> None:
        """Record that there are no more chunks."""
        self._add({"complete": True})
        self.is_complete = True

    def _last_sizes(self) -> list[int]:
        return self.sizes[-1] if self.sizes else [0] * len(self._files)

    def _add(self, entry: Record) -> None:
        line = json.dumps(entry).encode() + b"\n"
        _write(self._lines, line)
        self._intact += len(line)

    def _read(self) -> None:
        """Read what an earlier start wrote, as far as it is intact."""
        self._intact = 0
        if not self._path.exists():
            return
        present = [file.stat().st_size if file.exists() else 0 for file in self._files]
        with self._path.open("rb") as lines:
            for line in lines:
                entry = _parse(line)
                if entry is None:
                    return
                if "complete" in entry:
                    self.is_complete = True
                elif all(n <= there for n, there in zip(entry["sizes"], present, strict=True)):
                    self.sizes.append(entry["sizes"])
                    self.records.append(entry["record"])
                else:
                    return
                self._intact += len(line)


def _parse(line: bytes) -> Record | None:
    try:
        return parse_json(line) if line.endswith(b"\n") else None
    except ValueError:
        return None


def _open(path: Path, size: int) -> FileIO:
    # Unbuffered: what did not fit on a full disk must not be written again on closing.
    output = FileIO(path, "r+" if path.exists() else "w+")
    output.truncate(size)
    output.seek(size)
    return output


def _write(output: FileIO, content: bytes) -> None:
    left = memoryview(content)
    while left:
        left = left[output.write(left) :]
    os.fsync(output.fileno())
