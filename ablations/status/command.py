"""The command ``status``: print the status once, or show it until all runs have ended."""

from __future__ import annotations

import json
import time
from pathlib import Path

from ablations.status.from_directory import DirectoryReader
from ablations.status.model import to_json
from ablations.status.text import describe_all

_WATCH_SECONDS = 1.0


def show_status(directory: Path, *, watch: bool, as_json: bool) -> int:
    """Print the status of ``directory``; the exit code.

    Raises:
        InputError: if it is not the directory of a table or a search.
    """
    reader = DirectoryReader(directory)
    if not watch:
        status = reader.read()
        print(json.dumps(to_json(status)) if as_json else "\n".join(describe_all(status)))
        return 0
    return _watch_objects(reader) if as_json else _watch(reader)


def _watch(reader: DirectoryReader) -> int:
    from rich.console import Console

    from ablations.status.view import View

    status = reader.read()
    with View(Console(highlight=False)) as view:
        while not status.is_over:
            view.update(lambda status=status: status)
            time.sleep(_WATCH_SECONDS)
            status = reader.read()
    print("\n".join(describe_all(status)))
    return 0


def _watch_objects(reader: DirectoryReader) -> int:
    while True:
        status = reader.read()
        print(json.dumps(to_json(status)), flush=True)
        if status.is_over:
            return 0
        time.sleep(_WATCH_SECONDS)
