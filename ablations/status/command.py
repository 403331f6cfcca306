"""The command ``status``: print the status once, or show it until all runs have ended."""

from __future__ import annotations

import json
import os
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Protocol

from ablations.status.from_directory import DirectoryReader
from ablations.status.model import Status, to_json
from ablations.status.planned import is_claimed
from ablations.status.text import describe_all

_WATCH_SECONDS = 1.0


class Reader(Protocol):
    """Reads the status of one directory or study repeatedly."""

    def read(self) -> Status:
        """The status now."""
        ...


def show_status(directory: Path, *, storage: str | None, watch: bool, as_json: bool) -> int:
    """Print the status of ``directory``, or if it is not visible of the study of that name.

    Raises:
        InputError: if there is neither.
    """
    with _reader(directory, storage) as reader:
        if not watch:
            status = reader.read()
            print(json.dumps(to_json(status)) if as_json else "\n".join(describe_all(status)))
            return 0
        return _watch_objects(reader) if as_json else _watch(reader)


def _reader(directory: Path, storage: str | None) -> AbstractContextManager[Reader]:
    if not is_claimed(directory) and (storage or os.environ.get("OPTUNA_STORAGE")):
        # Imported only here: Optuna takes longer to import than all the rest.
        from ablations.runner.storage_url import storage_url
        from ablations.status.from_storage import open_study

        return open_study(storage_url(storage, directory), directory.resolve().name)
    return nullcontext(DirectoryReader(directory))


def _watch(reader: Reader) -> int:
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


def _watch_objects(reader: Reader) -> int:
    while True:
        status = reader.read()
        print(json.dumps(to_json(status)), flush=True)
        if status.is_over:
            return 0
        time.sleep(_WATCH_SECONDS)
