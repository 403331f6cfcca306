"""From declared locations to verified files on disk."""

from __future__ import annotations

import bz2
import difflib
import gzip
import hashlib
import html
import lzma
import os
import re
import subprocess
import sys
import tarfile
import zlib
from dataclasses import replace
from functools import partial
from io import BufferedReader, RawIOBase
from pathlib import Path, PurePosixPath
from typing import Any, cast

from sacrebleu.utils import get_available_testsets

from transformer.corpus import TextFile
from transformer.data.columns import write_column
from transformer.data.fetch.cache import (
    cache_directory,
    check_sha256,
    check_space,
    sha256_of,
    write_once,
)
from transformer.data.fetch.download import cached_path, fetch_download
from transformer.data.text import read_text
from transformer.errors import InputError
from transformer.files import expand_user
from transformer.parsing.treebanks import TreebankText
from transformer.progress import show_progress

_CHUNK = 2**20
_CORPORA = Path(__file__).parents[1] / "corpora"
# The checksums of the archives there, which come with the package.
_BUILTIN = {"cldr_en_de": "48f97ae459bddd13f77a98377712f59799af194f4654b0c02565f0054f01f661"}
_SPLITS = "there are valid, test, and sets of sacreBLEU such as wmt14/full"
# Bytes that an archive may have between the end of a file and the next one, for their names.
_MOST_HEADERS = 4 * _CHUNK
_PACKINGS = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7z": lzma.open, b"]\0": lzma.open}
# What tarfile and decompressors raise of nonsense in headers, besides their own errors.
_BY_HEADERS = (OSError, RecursionError, ValueError)
# Text shrinks to a fifth or a tenth; an archive that grows by more than this holds no text.
_MOST_GROWTH = 100

# sacreBLEU itself sets no time-out.
_TIMEOUT_SECONDS = 300
_FIELDS = {"source": "src", "reference": "ref"}
_LOCATION = re.compile(r"sacrebleu:(.+)/([a-z]+-[a-z]+)/(source|reference)")
# Entities of the SGML that the sets were published in; without a semicolon it is text.
_ENTITY = re.compile(r"&#?\w+;")
# sacreBLEU writes to a folder that must be set before its import, and leaves failed downloads
# there. So it runs in a separate process with a folder that is removed if it fails.
_FETCH = "import sys; from sacrebleu.utils import get_files; get_files(sys.argv[1], sys.argv[2])"


def fetch(file: TextFile) -> Path:
    """A local file with the declared content: the user's own, built in, cached or downloaded."""
    if file.location.startswith("builtin:"):
        file = _builtin(file.location)
    archive = replace(file, member=None)
    if file.member is None:
        return _whole(archive)
    path = _member_path(file.sha256 or sha256_of(_whole(archive)), file.member)
    if path.is_dir():  # of other members
        raise InputError(f"{file.name} is a folder: name a file in it")
    if not path.exists():  # the archive may have been removed after it was unpacked
        write = write_column if file.is_column else _unpack
        write_once(path, partial(write, _whole(archive), file.member))
    return path


def _builtin(location: str) -> TextFile:
    """The member of an archive of the package that a ``builtin:`` location names."""
    name, _, member = location.removeprefix("builtin:").partition("/")
    if name not in _BUILTIN:
        raise InputError(f"{location} does not exist: built in is {', '.join(_BUILTIN)}")
    archive = _CORPORA / name / "texts.tar.xz"
    return TextFile(location=str(archive), sha256=_BUILTIN[name], member=member)


def is_here(file: TextFile) -> bool:
    """Whether a download, or the member of it that is needed, is in the cache."""
    places = [cached_path(file)]
    if file.member is not None and file.sha256 is not None:
        places.append(_member_path(file.sha256, file.member))
    return any(place.exists() for place in places)


def _member_path(sha256: str, member: str) -> Path:
    """The place of an unpacked member of the archive with this checksum."""
    return cache_directory() / "members" / sha256[:16] / member


def _whole(file: TextFile) -> Path:
    """The declared file, which may be an archive."""
    scheme = file.location.partition(":")[0]
    if file.is_download:
        return fetch_download(file)
    if scheme == "treebank":
        return _text_of_treebank(TreebankText.of(file.location))
    if scheme == "sacrebleu":
        return _text_of_test_set(file.location)
    path = expand_user(file.location)
    if not path.is_file():
        raise InputError(f"{path} does not exist: check its path")
    if file.sha256 is not None:
        check_sha256(path, file.sha256, path)
    return path


def _unpack(archive: Path, member: str, path: Path) -> None:
    """Write one plain file of a tar to ``path``; nothing else in the archive is looked at."""
    size = archive.stat().st_size
    try:
        with (
            archive.open("rb") as raw,
            show_progress(f"unpack {member}", size) as show,
            tarfile.open(fileobj=(stream := _Bounded(raw)), mode="r|", bufsize=_CHUNK) as tar,
        ):
            while (entry := tar.next()) is not None:
                cast(Any, tar).members.clear()  # an archive may have millions
                stream.limit = tar.offset + _MOST_HEADERS
                if entry.offset_data + entry.size > max(_MOST_GROWTH * size, 2 * _CHUNK):
                    raise InputError(
                        f"{archive} grows to more than {_MOST_GROWTH} times its size by its "
                        f"member {entry.name}: that is not text"
                    )
                if PurePosixPath(entry.name) != PurePosixPath(member) or not entry.isreg():
                    continue
                source = tar.extractfile(entry)
                assert source is not None, "a plain file can be read"
                check_space(path.parent, entry.size, member)
                with path.open("wb") as out:
                    while chunk := source.read(_CHUNK):
                        out.write(chunk)
                        show(raw.tell())
                return
    except (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError, *_BY_HEADERS) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # as of a full disk
        raise InputError(f"{archive} cannot be read: {error}; is it a whole tar?") from error
    raise InputError(f"{archive} has no file {member}: it is another archive than the declared one")


class _Bounded(RawIOBase):
    """A decompressed archive that can be read up to a limit, which advances from file to file: what
    lies between two files is read into memory, and might not end.
    """

    def __init__(self, raw: BufferedReader) -> None:
        super().__init__()
        start = raw.peek(2)
        opens = next((x for magic, x in _PACKINGS.items() if start.startswith(magic)), None)
        self._file = raw if opens is None else opens(raw)
        self._read = 0
        self.limit = _MOST_HEADERS

    def read(self, size: int = -1, /) -> bytes:
        """The next bytes."""
        chunk = self._file.read(size)
        self._read += len(chunk)
        if self._read > self.limit + _CHUNK:  # which is read ahead
            raise tarfile.ReadError("the names of its files take too much room")
        return chunk


def _text_of_test_set(location: str) -> Path:
    """A text file with the side of a test set that a ``sacrebleu:`` location names.

    It is read from the folder ``SACREBLEU`` (default ``~/.sacrebleu``), or sacreBLEU fetches it to
    our cache; entities are unescaped.
    """
    match = _LOCATION.fullmatch(location)
    if match is None:
        raise InputError(
            f"{location} is not a side of a test set: write sacrebleu:wmt14/full/en-de/source or "
            "…/reference"
        )
    name, pair, side = match.groups()
    stem = f"{name.replace('/', '_')}.{pair}"
    given = expand_user(os.environ.get("SACREBLEU") or "~/.sacrebleu")
    fetched = cache_directory() / "sacrebleu" / stem
    file = f"{stem}.{_FIELDS[side]}"
    found = _only(given / name, file) or _only(fetched / name, file)
    if found is None:
        if name not in (known := get_available_testsets()):
            near = difflib.get_close_matches(name, ["valid", "test", *known], n=1, cutoff=0.7)
            hint = f"did you mean {near[0]!r}?" if near else _SPLITS
            raise InputError(f"unknown split {name!r}: {hint}")
        write_once(fetched, partial(_fetch, name, pair))
        found = _only(fetched / name, file)
    if found is None:
        raise InputError(f"sacreBLEU's {name} for {pair} has no single reference")
    lines = (_ENTITY.sub(lambda x: html.unescape(x[0]), line) for line in read_text(found))
    content = "".join(f"{line}\n" for line in lines).encode()
    key = hashlib.sha256(content).hexdigest()[:16]
    path = cache_directory() / "testsets" / key / f"{stem}.{side}"
    return write_once(path, lambda part: part.write_bytes(content))


def _only(folder: Path, name: str) -> Path | None:
    """The file of this name; a single reference may carry its author's name."""
    found = [*folder.glob(name), *folder.glob(f"{name}-*")]
    return found[0] if len(found) == 1 else None


def _fetch(name: str, pair: str, folder: Path) -> None:
    print(f"fetch sacreBLEU's {name}", file=sys.stderr, flush=True)
    folder.mkdir()
    try:
        subprocess.run(
            [sys.executable, "-c", _FETCH, name, pair],
            env={**os.environ, "SACREBLEU": str(folder)},
            capture_output=True,
            text=True,
            check=True,
            timeout=_TIMEOUT_SECONDS,
        )
        return
    except subprocess.CalledProcessError as error:
        lines = error.stderr.strip().splitlines()
        # For a wrong checksum it logs several lines.
        reason = next((line for line in lines if "Fatal" in line), lines[-1] if lines else "?")
    except subprocess.TimeoutExpired:
        reason = f"no answer in {_TIMEOUT_SECONDS} s"
    raise InputError(
        f"sacreBLEU cannot fetch {name} for {pair} ({reason}); set SACREBLEU to a folder that "
        f"holds {name}/{name.replace('/', '_')}.{pair}.src and .ref"
    )


def _text_of_treebank(text: TreebankText) -> Path:
    """A file with the lines of ``text``, in a folder of the cache for all sides of its split."""
    files = text.files()
    contents = [file.sha256 or sha256_of(Path(file.location)) for file in files]
    folder = cache_directory() / "treebanks" / text.folder_name(contents)
    return write_once(folder, lambda part: text.write(part, map(fetch, files))) / text.side
