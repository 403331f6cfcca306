"""Test sets that sacreBLEU knows."""

from __future__ import annotations

import html
import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

from sacrebleu.utils import get_available_testsets

from transformer.data.fetch.cache import cache_directory, exclusive, making, write_once
from transformer.data.text import read_text
from transformer.errors import InputError, unknown_name

# sacreBLEU itself sets no time-out.
_TIMEOUT_SECONDS = 300
_FIELDS = {"source": "src", "reference": "ref"}
_LOCATION = re.compile(r"sacrebleu:(?P<name>.+)/(?P<pair>[a-z]+-[a-z]+)/(?P<side>source|reference)")
# Entities of the SGML that the sets were published in; without a semicolon it is text.
_ENTITY = re.compile(r"&#?\w+;")
# sacreBLEU writes to a folder that must be set before its import, and leaves failed downloads
# there. So it runs in a separate process with a folder that is removed if it fails.
_FETCH = "import sys; from sacrebleu.utils import get_files; get_files(sys.argv[1], sys.argv[2])"


def sacrebleu_text(name: str, language_pair: str) -> tuple[list[str], list[str]]:
    """Source and reference lines of a test set such as ``wmt14/full``, entities unescaped.

    They are read from the folder ``SACREBLEU`` (default ``~/.sacrebleu``), or sacreBLEU fetches
    them to our cache.
    """
    if not is_available(name, language_pair):
        if name not in (known := get_available_testsets()):
            raise unknown_name("split", name, ["valid", "test", *known])
        write_once(_folder(name, language_pair), partial(_fetch, name, language_pair))
    source, reference = (_file(name, language_pair, field) for field in _FIELDS.values())
    if source is None or reference is None:
        raise InputError(f"sacreBLEU's {name} for {language_pair} has no single reference")
    return _unescaped(source), _unescaped(reference)


def text_side(location: str) -> Path:
    """A text file with the side of a test set that a ``sacrebleu:`` location names."""
    name, pair, side = split_location(location)
    lines = sacrebleu_text(name, pair)[list(_FIELDS).index(side)]
    content = "".join(f"{line}\n" for line in lines).encode()
    path = cache_directory() / "testsets" / f"{_stem(name, pair)}.{side}"
    with exclusive(path, f"writes {path.name}"):
        if not path.exists() or path.read_bytes() != content:
            with making(path) as part:
                part.write_bytes(content)
    return path


def split_location(location: str) -> tuple[str, str, str]:
    """Name, language pair and side of a ``sacrebleu:`` location."""
    match = _LOCATION.fullmatch(location)
    if match is None:
        raise InputError(
            f"{location} is no side of a test set: write it as sacrebleu:wmt14/full/en-de/source "
            "or …/reference"
        )
    return match["name"], match["pair"], match["side"]


def is_available(name: str, language_pair: str) -> bool:
    """True if the set is on this machine already."""
    return all(_file(name, language_pair, field) for field in _FIELDS.values())


def _stem(name: str, pair: str) -> str:
    return f"{name.replace('/', '_')}.{pair}"


def _folder(name: str, pair: str) -> Path:
    return cache_directory() / "sacrebleu" / _stem(name, pair)


def _file(name: str, pair: str, field: str) -> Path | None:
    """A field's file in sacreBLEU's layout; a single reference may carry its author's name."""
    given = Path(os.environ.get("SACREBLEU") or "~/.sacrebleu").expanduser()
    for folder in (given / name, _folder(name, pair) / name):
        stem = f"{_stem(name, pair)}.{field}"
        found = [*folder.glob(stem), *folder.glob(f"{stem}-*")]
        if len(found) == 1:
            return found[0]
    return None


def _fetch(name: str, pair: str, folder: Path) -> None:
    print(f"fetch sacreBLEU's {name}", file=sys.stderr, flush=True)
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
        f"sacreBLEU cannot fetch {name} for {pair} ({reason}); "
        f"set SACREBLEU to a folder that holds {name}/{_stem(name, pair)}.src and .ref"
    )


def _unescaped(path: Path) -> list[str]:
    return [_ENTITY.sub(lambda match: html.unescape(match[0]), line) for line in read_text(path)]
