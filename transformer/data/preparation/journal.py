"""Files that grow chunk by chunk, of which a kill at any moment costs no more than one chunk."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from io import FileIO
from pathlib import Path
from typing import Any

Record = dict[str, Any]


class Journal:
    """Some files and one line of JSON for each chunk that is wholly in them.

    The line is written once the files are synced. What stands behind the last line, where a kill
    or a full disk ended it, is cut off when the journal is closed or opened again, so that the
    next chunk goes where it would have gone.

    Args:
        path: of the journal
        files: each gets its part of every chunk

    Attributes:
        records: what was told of each chunk
        sizes: for each chunk the size of each file behind it
        is_complete: whether all chunks are there
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
        self._lines = _open(path, self._sound)

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        for output, size in zip(self._outputs, self._last_sizes(), strict=True):
            output.truncate(size)
            output.close()
        self._lines.truncate(self._sound)
        self._lines.close()

    def append(self, parts: Sequence[bytes], record: Record) -> None:
        """Add a chunk: one part for each file, and what is to be known of it."""
        for output, part in zip(self._outputs, parts, strict=True):
            _write(output, part)
        sizes = [old + len(part) for old, part in zip(self._last_sizes(), parts, strict=True)]
        self._add({"sizes": sizes, "record": record})
        self.sizes.append(sizes)
        self.records.append(record)

    def complete(self) -> None:
        """Say that there are no more chunks."""
        self._add({"complete": True})
        self.is_complete = True

    def _last_sizes(self) -> list[int]:
        return self.sizes[-1] if self.sizes else [0] * len(self._files)

    def _add(self, entry: Record) -> None:
        line = json.dumps(entry).encode() + b"\n"
        _write(self._lines, line)
        self._sound += len(line)

    def _read(self) -> None:
        """Take up what an earlier start wrote, as far as it is sound."""
        self._sound = 0
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
                self._sound += len(line)


def _parse(line: bytes) -> Record | None:
    try:
        return json.loads(line) if line.endswith(b"\n") else None
    except ValueError:
        return None


def _open(path: Path, size: int) -> FileIO:
    # Without a buffer: what a full disk did not take must not be tried again at closing.
    output = FileIO(path, "r+" if path.exists() else "w+")
    output.truncate(size)
    output.seek(size)
    return output


def _write(output: FileIO, content: bytes) -> None:
    left = memoryview(content)
    while left:
        left = left[output.write(left) :]
    os.fsync(output.fileno())
