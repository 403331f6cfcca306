"""Write whole files and folders, lock files, load Python files."""

from __future__ import annotations

import errno
import fcntl
import importlib.util
import json
import math
import os
import shutil
import sys
import time
import traceback
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO, TextIO, cast

from transformer.errors import InputError

_UNFINISHED = ".part"
# What a file system says that cannot sync a folder.
_NO_SYNC = (errno.EINVAL, errno.ENOTSUP)
_POLL_SECONDS = 0.1
_MOST_BYTES = 100_000_000  # of a file that has settings or figures
_MOST_DIGITS = 20  # as many as a seed of 64 bits has


def remove_unfinished(directory: Path) -> None:
    """Remove the half-written files that killed processes left in a run's directory."""
    for folder in (directory, directory / "checkpoints"):
        for path in folder.glob(f".*{_UNFINISHED}"):
            if not path.is_dir():  # as of an export, which may be at work
                path.unlink(missing_ok=True)


def expand_user(path: str | Path) -> Path:
    """The path with ``~`` replaced by the user's folder."""
    try:
        return Path(path).expanduser()
    except RuntimeError as error:  # as of a container's user, whom the system does not know
        raise InputError(
            f"{path} cannot be found, as no such home directory is known: set HOME, or for the "
            "project's own folders DATA_CACHE and SACREBLEU"
        ) from error


def make_directory(path: Path) -> None:
    """Make a directory and its parents."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        in_place = isinstance(error, FileExistsError | NotADirectoryError)
        why = "a file is in its place" if in_place else error.strerror
        raise InputError(f"{path} cannot be made ({why}): choose another directory") from error


def check_output(path: Path) -> None:
    """Check that the file of ``--output`` can be written, before the work for it begins."""
    if not path.parent.is_dir():
        raise InputError(f"{path.parent} is not a folder: --output cannot be written")
    if path.is_dir():
        raise InputError(f"{path} is a folder: --output takes a file")


def rename(path: Path, target: Path) -> None:
    """Rename a file or a folder so that the new name survives a power cut; a file is replaced."""
    path.rename(target)
    folder = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    except OSError as error:
        if error.errno not in _NO_SYNC:
            raise
    finally:
        os.close(folder)


@contextmanager
def making(path: Path) -> Generator[Path]:
    """Yield a path to write a file or folder to, which is renamed to ``path`` in the end.

    It is removed if that fails; the next attempt removes what a kill has left.
    """
    part = part_of(path)
    remove(part)
    try:
        yield part
        keep(part, path)
    finally:
        remove(part)


def part_of(path: Path) -> Path:
    """The path of an unfinished ``path``."""
    return path.with_name(f".{path.name}{_UNFINISHED}")


def keep(part: Path, path: Path) -> None:
    """Sync a finished file or folder to the disk and rename it to ``path``."""
    for each in (part, *part.rglob("*")):
        if each.is_file():
            with each.open("rb") as file:
                os.fsync(file.fileno())
    rename(part, path)


def remove(path: Path) -> None:
    """Remove a file or a folder, if it exists."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@contextmanager
def locked(path: Path, *, seconds: float = math.inf, shared: bool = False) -> Generator[TextIO]:
    """Hold the lock of a file, which is made; the system releases it however the process ends.

    Raises:
        BlockingIOError: if another process has it for so many ``seconds``.
    """
    kind, deadline = fcntl.LOCK_SH if shared else fcntl.LOCK_EX, time.monotonic() + seconds
    with path.open("a+", encoding="utf-8", errors="replace") as file:
        while True:
            try:
                fcntl.flock(file, kind | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise
                time.sleep(_POLL_SECONDS)
            except OSError as error:  # as on Lustre that is mounted without flock
                raise InputError(
                    f"{path} cannot be locked ({error.strerror}): choose a --directory, or for the "
                    "cache a DATA_CACHE, on another disk"
                ) from error
        yield file


def write_atomically(path: Path, content: str | bytes) -> None:
    """Replace ``path``: after a crash, and for any reader, it is the whole old or new file.

    A device or a pipe, such as /dev/null, is written to and stays.
    """
    is_special = path.exists() and not path.is_file() and not path.is_dir()
    with path.open("wb") if is_special else replacing(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


@contextmanager
def replacing(path: Path) -> Generator[BinaryIO]:
    """A file to write that replaces ``path`` in the end; nothing is left behind if that fails."""
    # A name of its own: a process on another machine may be writing the same file.
    temporary = path.with_name(f".{path.name}.{os.urandom(4).hex()}{_UNFINISHED}")
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        rename(temporary, path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None:
            error.filename = str(path)
        raise


def write_json(path: Path, value: object) -> None:
    """Write ``value`` atomically as indented JSON, keys in their own order."""
    write_atomically(path, to_json(value))


def to_json(value: object, *, indent: int | None = 2) -> str:
    """What :func:`write_json` writes. JSON has no infinity, so that is the string "Infinity", which
    ``from_dict`` reads as a number again.
    """
    valid = json.loads(json.dumps(value), parse_constant=str)
    return json.dumps(valid, indent=indent, ensure_ascii=False, allow_nan=False) + "\n"


def read_json(path: Path) -> dict[str, Any]:
    """Read an object that :func:`write_json` wrote."""
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror})") from error
    return parse_json(content, path)


def parse_json(content: bytes, where: Path | str) -> dict[str, Any]:
    """The object of JSON in ``content``, which was read from ``where``."""
    try:
        if len(content) > _MOST_BYTES:
            raise ValueError(f"it has more than {_MOST_BYTES / 1e6:.0f} MB")
        text = content.decode()
        value = json.loads(text, parse_int=_integer)
        if not isinstance(value, dict):
            raise ValueError("it is not an object")
        if "\\ud" in text.lower():  # half of a pair could be read, but not written or printed
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"{where} cannot be read as JSON ({error}); delete it to have it made again"
        ) from error
    return cast(dict[str, Any], value)


def _integer(digits: str) -> int:
    if len(digits) > _MOST_DIGITS:
        raise ValueError(f"a number has {len(digits)} digits")
    return int(digits)


def load_file(path: Path, kind: str) -> ModuleType:
    """Run a Python file and return it as a module; it may import what lies in its folder.

    Args:
        path: of the file
        kind: what it should declare, such as "table", for the message
    """
    if not path.is_file():
        raise InputError(f"there is no {kind} file {path}")
    name = f"file:{path.resolve()}"  # no name of another module
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InputError(f"{path} cannot be loaded as Python")
    if (folder := str(path.resolve().parent)) not in sys.path:
        sys.path.append(folder)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except InputError as error:
        raise InputError(f"{_place(error, path)}: {error}") from error
    except (Exception, SystemExit) as error:  # any failure of a user's file is bad input
        message = " ".join(f"{type(error).__name__}: {error}".split())
        raise InputError(f"{_place(error, path)}: {message}") from error
    return module


def _place(error: BaseException, path: Path) -> str:
    """The file and line that failed: of a user's file or of one that it imports from its folder; a
    syntax error names its line itself.
    """
    frames = traceback.extract_tb(error.__traceback__)
    files = [x for x in frames if not x.filename.startswith("<")]  # as Python names its own code
    own = [x for x in files if Path(x.filename).resolve().parent == path.resolve().parent]
    return f"{own[-1].filename}, line {own[-1].lineno}" if own else str(path)
