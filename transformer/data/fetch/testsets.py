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


def text_of_test_set(location: str) -> Path:
    """A text file with the side of a test set that a ``sacrebleu:`` location names.

    It is read from the folder ``SACREBLEU`` (default ``~/.sacrebleu``), or sacreBLEU fetches it to
    our cache; entities are unescaped.
    """
    name, pair, side = split_location(location)
    stem = f"{name.replace('/', '_')}.{pair}"
    given = Path(os.environ.get("SACREBLEU") or "~/.sacrebleu").expanduser()
    fetched = cache_directory() / "sacrebleu" / stem
    file = f"{stem}.{_FIELDS[side]}"
    found = _only(given / name, file) or _only(fetched / name, file)
    if found is None:
        if name not in (known := get_available_testsets()):
            raise unknown_name("split", name, ["valid", "test", *known])
        write_once(fetched, partial(_fetch, name, pair))
        found = _only(fetched / name, file)
    if found is None:
        raise InputError(f"sacreBLEU's {name} for {pair} has no single reference")
    lines = (_ENTITY.sub(lambda x: html.unescape(x[0]), line) for line in read_text(found))
    content = "".join(f"{line}\n" for line in lines).encode()
    path = cache_directory() / "testsets" / f"{stem}.{side}"
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


def _only(folder: Path, name: str) -> Path | None:
    """The file of this name; a single reference may carry its author's name."""
    found = [*folder.glob(name), *folder.glob(f"{name}-*")]
    return found[0] if len(found) == 1 else None


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
        f"sacreBLEU cannot fetch {name} for {pair} ({reason}); set SACREBLEU to a folder that "
        f"holds {name}/{name.replace('/', '_')}.{pair}.src and .ref"
    )
