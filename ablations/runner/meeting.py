"""Where the workers of a directory meet: all must use one storage, or each would take the others'
live cells for orphans.
"""

from __future__ import annotations

import time
from pathlib import Path

from sqlalchemy.engine import URL

from ablations.runner.storage import Patience
from experiments.run.files import read_json, write_json
from experiments.run.progress import PROGRESS_FILE
from transformer.errors import InputError

FLEET_FILE = "fleet.json"


def meet(root: Path, url: URL, patience: Patience) -> None:
    """Note which storage the fleet of ``root`` uses.

    Raises:
        InputError: if another one is in use there.
    """
    path, ours = root / FLEET_FILE, _describe(root, url)
    before = read_json(path).get("storage") if path.exists() else None
    if before == ours:
        return
    if before is not None and _is_busy(root, patience.grace_seconds):
        raise InputError(
            f"{root} is being worked on through the storage {before}, not {ours}: give all workers "
            "the same --storage, or wait for those to end"
        )
    write_json(path, {"storage": ours})


def _describe(root: Path, url: URL) -> str:
    """The storage in words that are the same on every machine: a server has many names."""
    if url.get_backend_name() == "sqlite":
        path = Path(str(url.database)).resolve()
        inside = path.is_relative_to(root.resolve())
        return f"SQLite's {path.relative_to(root.resolve()) if inside else path}"
    return f"PostgreSQL's database {url.database!r}"


def _is_busy(root: Path, grace_seconds: float) -> bool:
    """Whether a run there was heard of within the grace."""
    newest = max(
        (x.stat().st_mtime for x in root.glob(f"**/*.attempt-*/{PROGRESS_FILE}")), default=0
    )
    return time.time() - newest < grace_seconds
