"""Room on the disk, asked for before it is needed."""

from __future__ import annotations

import shutil
from pathlib import Path

from transformer.errors import InputError
from transformer.formats import size


def check_space(path: Path, needed: int, what: str) -> None:
    """Refuse to write ``needed`` bytes at ``path`` where there is less room.

    Raises:
        InputError: naming both amounts.
    """
    free = shutil.disk_usage(path.parent).free
    if free < needed:
        raise InputError(
            f"{what} needs {size(needed)} in {path.parent}, where {size(free)} are free: "
            "make room, or set DATA_CACHE to another disk"
        )
