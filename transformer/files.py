"""Read and write whole files, safely in other people's folders.

A folder may come from somebody else. What is read or written in it is a plain file: a link could
lead to any file of the user's, and a pipe or a device keep a reader waiting.
"""

from __future__ import annotations

import errno
import fcntl
import io
import json
import math
import os
import re
import shutil
import stat
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Literal, TextIO, cast

from transformer.errors import InputError

_UNFINISHED = ".part"
# Errors of a file system that cannot sync a folder.
_NO_SYNC = (errno.EINVAL, errno.ENOTSUP)
_POLL_SECONDS = 0.1
_MOST_BYTES = 16_000_000  # of a file with settings or scores, which is held in memory
_MOST_COPIED = 1_000_000_000  # and of one that is copied, or read by a library
_MOST_DIGITS = 20  # as many as a seed of 64 bits has
_KINDS = {
    stat.S_IFLNK: "a link",
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
# Control characters but tabs and line breaks; some begin a terminal's commands.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def open_plain(path: Path, mode: Literal["rb", "ab", "a+b"] = "rb") -> BinaryIO:
    """Open a plain file.

    Raises:
        InputError: if something else has its name.
    """
    return open(path, mode, opener=_open_plain)


def _open_plain(path: str, flags: int) -> int:
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY, 0o666)
    except OSError:
        check_plain(Path(path))
        raise
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    check_plain(Path(path))
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)  # it has just changed


def check_plain(path: Path, most: int = _MOST_COPIED) -> None:
    """Check, before a library opens ``path``, that it is a plain file or nothing.

    Raises:
        InputError: if it is something else, or has more than ``most`` bytes.
    """
    with suppress(FileNotFoundError, NotADirectoryError):
        status = path.lstat()
        if (kind := _KINDS.get(stat.S_IFMT(status.st_mode))) is not None:
            raise InputError(f"{path} is {kind}, and not a file: remove it, or restore the file")
        if status.st_size > most:
            raise _too_large(path, most)


def within(folder: Path, name: str) -> Path:
    """The path of ``name`` in a folder; the folder itself may be a link, those below it may not.

    Raises:
        InputError: if one is, or the name leads out of the folder.
    """
    path, parts = folder, Path(name).parts
    if ".." in parts or Path(name).is_absolute():
        raise InputError(f"{visible(name)!r} leads out of the folder {folder}: remove that name")
    for part in parts:
        path = path / part
        if path.is_symlink():
            raise InputError(f"{path} is a link, which may lead anywhere: put the folder there")
    return path


def read_bytes(path: Path, most: int = _MOST_BYTES) -> bytes:
    """The content of a plain file of at most so many bytes."""
    with open_plain(path) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise _too_large(path, most)
    return content


def _too_large(path: Path, most: int) -> InputError:
    return InputError(f"{path} has more than {most / 1e6:.0f} MB, and is not a file of a run")


def read_text(path: Path) -> str:
    """The text of a small plain file, with control characters spelled out."""
    return visible(read_bytes(path).decode(errors="replace").replace("\r\n", "\n"))


def copy_plain(path: Path, target: Path) -> None:
    """Copy a plain file to a new one."""
    check_plain(path)
    with open_plain(path) as file, target.open("xb") as copy:
        shutil.copyfileobj(file, copy)


def visible(text: str) -> str:
    """``text`` with its control characters spelled out."""
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def _visible(value: Any) -> Any:
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, list):
        return [_visible(each) for each in cast(list[Any], value)]
    if isinstance(value, dict):
        return {visible(name): _visible(x) for name, x in cast(dict[str, Any], value).items()}
    return value


def remove_unfinished(directory: Path) -> None:
    """Remove the half-written files that killed processes left in a run's directory."""
    for folder in (directory, within(directory, "checkpoints")):
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
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@contextmanager
def locked(path: Path, *, seconds: float = math.inf, shared: bool = False) -> Generator[TextIO]:
    """Hold the lock of a file, created if needed; the system releases it however the process ends.

    Raises:
        BlockingIOError: if another process has it for so many ``seconds``.
    """
    kind, deadline = fcntl.LOCK_SH if shared else fcntl.LOCK_EX, time.monotonic() + seconds
    opened = open_plain(path, "a+b")
    with io.TextIOWrapper(opened, encoding="utf-8", errors="replace") as file:
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
    """Replace ``path``: after a crash, and for any reader, it is the whole old or new file."""
    with replacing(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def write_output(path: Path, content: str | bytes) -> None:
    """Write the file of ``--output``; a device or a pipe, such as /dev/null, stays one."""
    if path.exists() and not path.is_file():
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    else:
        write_atomically(path, content)


@contextmanager
def replacing(path: Path) -> Generator[BinaryIO]:
    """A file to write that replaces ``path`` in the end; nothing is left behind if that fails."""
    if path.is_dir() and not path.is_symlink():
        check_plain(path)
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
    """The text that :func:`write_json` writes. JSON has no infinity, so that is the string
    "Infinity", which ``from_dict`` reads as a number again.
    """
    valid = json.loads(json.dumps(value), parse_constant=str)
    return json.dumps(valid, indent=indent, ensure_ascii=False, allow_nan=False) + "\n"


def read_json(path: Path, remedy: str = "; delete it to have it made again") -> dict[str, Any]:
    """Read an object that :func:`write_json` wrote; control characters in its texts are spelled
    out.

    Raises:
        InputError: if it cannot be read; for one that is no JSON, with the ``remedy``.
    """
    try:
        content = read_bytes(path)
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror})") from error
    try:
        return parse_json(content, path)
    except InputError as error:
        raise InputError(f"{error}{remedy}") from error


def parse_json(content: bytes, where: Path | str) -> dict[str, Any]:
    """The object of JSON in ``content``, which was read from ``where``."""
    try:
        text = content.decode()
        value = _visible(json.loads(text, parse_int=_integer))
        if not isinstance(value, dict):
            raise ValueError("it is not an object")
        if "\\ud" in text.lower():  # half of a pair could be read, but not written or printed
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where} cannot be read as JSON ({error})") from error
    return cast(dict[str, Any], value)


def _integer(digits: str) -> int:
    if len(digits) > _MOST_DIGITS:
        raise ValueError(f"a number has {len(digits)} digits")
    return int(digits)
