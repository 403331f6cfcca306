"""Small files that other processes read while we write them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from transformer.errors import InputError

_UNFINISHED = ".part"


def unfinished(path: Path) -> Path:
    """Where new content of ``path`` is written before it is renamed.

    The name is new each time: a process on another machine may be writing the same file.
    """
    return path.with_name(f".{path.name}.{os.urandom(4).hex()}{_UNFINISHED}")


def remove_unfinished(directory: Path) -> None:
    """Remove the half-written files that killed processes left in a run's directory."""
    for folder in (directory, directory / "checkpoints"):
        for path in folder.glob(f".*{_UNFINISHED}"):
            path.unlink(missing_ok=True)


def make_directory(path: Path) -> None:
    """Make a directory and its parents.

    Raises:
        InputError: if that is not possible.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        in_place = isinstance(error, FileExistsError | NotADirectoryError)
        why = "a file is in its place" if in_place else error.strerror
        raise InputError(f"{path} cannot be made ({why}): choose another --directory") from error


def write_atomically(path: Path, content: str | bytes) -> None:
    """Replace ``path``: after a crash, and for any reader, it is the whole old or new file."""
    temporary = unfinished(path)
    try:
        with temporary.open("wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None:
            error.filename = str(path)
        raise


def write_json(path: Path, value: object) -> None:
    """Write ``value`` atomically as indented JSON, keys in their own order."""
    write_atomically(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """Read an object that :func:`write_json` wrote.

    Raises:
        InputError: if the file cannot be read or does not hold a JSON object.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise InputError(
            f"{path} cannot be read as JSON ({error}); delete it to have it made again"
        ) from error
    if not isinstance(value, dict):
        raise InputError(f"{path} does not hold a JSON object; delete it to have it made again")
    return value
