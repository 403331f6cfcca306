"""``ablations status``: which view of which place, once or until all is done."""

from __future__ import annotations

import json
import os
import time
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Protocol

from ablations.status.contents import is_claimed
from ablations.status.from_directory import DirectoryReader
from ablations.status.lines import describe_all
from ablations.status.model import Status
from ablations.status.objects import to_object

_WATCH_SECONDS = 1.0


class Reader(Protocol):
    """Gathers a status anew each time."""

    def read(self) -> Status:
        """The status now."""
        ...


def show_status(directory: Path, *, storage: str | None, watch: bool, as_json: bool) -> int:
    """Print the status of ``directory``, or with no such directory in sight of the study of its
    name in the storage; the exit code.

    Raises:
        InputError: if neither is a fleet's.
    """
    with _reader(directory, storage) as reader:
        if not watch:
            status = reader.read()
            print(json.dumps(to_object(status)) if as_json else "\n".join(describe_all(status)))
            return 0
        return _watch_objects(reader) if as_json else _watch(reader)


def _reader(directory: Path, storage: str | None) -> AbstractContextManager[Reader]:
    if not is_claimed(directory) and (storage or os.environ.get("OPTUNA_STORAGE")):
        # Here alone: Optuna takes longer to import than all the rest.
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
            view.update(partial(_same, status))
            time.sleep(_WATCH_SECONDS)
            status = reader.read()
    print("\n".join(describe_all(status)))
    return 0


def _same(status: Status) -> Status:
    return status


def _watch_objects(reader: Reader) -> int:
    while True:
        status = reader.read()
        print(json.dumps(to_object(status)), flush=True)
        if status.is_over:
            return 0
        time.sleep(_WATCH_SECONDS)
