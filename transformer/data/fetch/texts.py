"""From declared locations to verified files on disk."""

from __future__ import annotations

import hashlib
import json
import lzma
import tarfile
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import get_args

from transformer.corpus import TextFile
from transformer.data.corpora import cldr
from transformer.data.corpora.treebanks import SENTENCES, TreebankText
from transformer.data.fetch.cache import (
    cache_directory,
    check_sha256,
    check_space,
    exclusive,
    making,
    part_of,
    sha256_of,
    write_once,
)
from transformer.data.fetch.download import cached_path, fetch_download
from transformer.data.fetch.testsets import is_available, split_location, text_side
from transformer.data.trees import Leaves, linearise, read_trees, words
from transformer.errors import InputError
from transformer.progress import show_progress

_CHUNK = 2**20
# Incremented when the same trees would give other lines.
_TREES_FORMAT = 2


def fetch(file: TextFile) -> Path:
    """A local file with the declared content: the user's own, generated, cached or downloaded."""
    return fetch_all([file])[file]


def fetch_all(files: Iterable[TextFile]) -> dict[TextFile, Path]:
    """As :func:`fetch` for several files: each archive is read once, the user's own come first."""
    groups: dict[tuple[str, str | None], list[TextFile]] = {}
    for file in sorted(files, key=lambda file: file.is_download):
        groups.setdefault((file.location, file.sha256), []).append(file)
    paths: dict[TextFile, Path] = {}
    for group in groups.values():
        names = [file.member for file in group if file.member is not None]
        members = _members(group[0], names) if names else {}
        for file in group:
            paths[file] = _whole(file) if file.member is None else members[file.member]
    return paths


def missing(files: Iterable[TextFile]) -> dict[str, int | None]:
    """The addresses from which ``files`` have yet to be fetched, each with its missing bytes.

    None stands for an undeclared size.
    """
    found: dict[str, int | None] = {}
    for file in files:
        if file.location.startswith("treebank:"):
            text = TreebankText.of(file.location)
            trees = [] if _trees_folder(text).exists() else text.files()
            found |= missing(each for each in trees if each.is_download)
        elif file.location.startswith("sacrebleu:"):
            name, pair, _ = split_location(file.location)
            if not is_available(name, pair):
                found[f"sacrebleu:{name}/{pair}"] = None
        elif file.is_download and not _is_here(file):
            begun = part_of(cached_path(file))
            done = begun.stat().st_size if begun.exists() else 0
            found[file.location] = None if file.bytes is None else max(0, file.bytes - done)
    return found


def _is_here(file: TextFile) -> bool:
    places = [cached_path(file)]
    if file.member is not None and file.sha256 is not None:
        places.append(member_folder(file.sha256) / file.member)
    return any(place.exists() for place in places)


def member_folder(sha256: str) -> Path:
    """The folder for unpacked members of the archive with this checksum."""
    return cache_directory() / "members" / sha256[:16]


def _members(archive: TextFile, names: list[str]) -> dict[str, Path]:
    """These members of an archive, which may have been removed after they were unpacked."""
    if archive.sha256 is not None:
        paths = {name: member_folder(archive.sha256) / name for name in names}
        if all(path.exists() for path in paths.values()):
            return paths
    whole = _whole(archive)
    return unpack_members(whole, names, member_folder(archive.sha256 or sha256_of(whole)))


def _whole(file: TextFile) -> Path:
    """The declared file, which may be an archive."""
    scheme, _, rest = file.location.partition(":")
    if file.is_download:
        return fetch_download(file)
    if scheme == "builtin":
        generator, _, name = rest.partition("/")
        folder = cache_directory() / "builtin" / f"{generator}-{cldr.VERSION}"
        return write_once(folder, cldr.write) / name
    if scheme == "treebank":
        text = TreebankText.of(file.location)
        return write_once(_trees_folder(text), partial(_write_trees, text)) / text.file_name
    if scheme == "sacrebleu":
        return text_side(file.location)
    path = Path(file.location).expanduser()
    if not path.is_file():
        raise InputError(f"{path} does not exist: check its path")
    if file.sha256 is not None:
        check_sha256(path, file.sha256, path)
    return path


def unpack_members(archive: Path, names: Sequence[str], folder: Path) -> dict[str, Path]:
    """The files of these members of a tar, unpacked into ``folder`` on first use.

    The archive is read once, up to the last of them. Nothing else is written, and no path or link
    in the archive is followed.
    """
    paths = {name: folder / name for name in names}
    for name, path in paths.items():
        if not path.resolve().is_relative_to(folder.resolve()):
            raise InputError(f"the member {name} of {archive} points outside of it")
    with exclusive(folder, f"unpacks {archive.name}"):
        wanted = {name: path for name, path in paths.items() if not path.exists()}
        try:
            if wanted:
                _unpack(archive, wanted)
        except (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError) as error:
            raise InputError(f"{archive} cannot be read: {error}; is it whole?") from error
    return paths


def _unpack(archive: Path, wanted: dict[str, Path]) -> None:
    size = archive.stat().st_size
    with (
        archive.open("rb") as raw,
        show_progress(f"unpack {archive.name}", size, in_bytes=True) as show,
        tarfile.open(fileobj=raw, mode="r|*", bufsize=_CHUNK) as tar,
    ):
        for entry in tar:
            path = wanted.pop(str(PurePosixPath(entry.name)), None) if entry.isreg() else None
            if path is None:
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            check_space(path, entry.size, f"{entry.name} of {archive.name}")
            source = tar.extractfile(entry)
            assert source is not None, "a plain file can be read"
            with making(path) as part, part.open("wb") as out:
                while chunk := source.read(_CHUNK):
                    out.write(chunk)
                    show(raw.tell())
            if not wanted:
                return
    raise InputError(
        f"{archive} has no file {', '.join(wanted)}: it is another archive than the declared one"
    )


def _trees_folder(text: TreebankText) -> Path:
    """The folder in the cache for all sides of ``text``, named by the content of the trees."""
    contents = [file.sha256 or sha256_of(Path(file.location)) for file in text.files()]
    parts = [_TREES_FORMAT, text.split, text.max_words, contents]
    key = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]
    return cache_directory() / "treebanks" / f"{Path(text.source).name}-{key}"


def _write_trees(text: TreebankText, directory: Path) -> None:
    """Write ``train.sentences``, ``train.XX``, ``train.words`` and so on, a line for each tree."""
    files = text.files()
    lines: dict[str, list[str]] = {side: [] for side in (SENTENCES, *get_args(Leaves))}
    with show_progress(f"{text.split} trees", len(files)) as update:
        for number, file in enumerate(files, 1):
            path = fetch_download(file) if file.is_download else Path(file.location)
            for tree in read_trees(_content(path), str(path)):
                sentence = words(tree)
                if text.max_words is None or len(sentence) <= text.max_words:
                    lines[SENTENCES].append(" ".join(sentence))
                    for leaves in get_args(Leaves):
                        lines[leaves].append(linearise(tree, leaves))
            update(number)
    for side, written in lines.items():
        path = directory / replace(text, side=side).file_name
        path.write_text("".join(f"{line}\n" for line in written), encoding="utf-8")


def _content(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read: {error}") from error
