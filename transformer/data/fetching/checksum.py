"""Whether a file is the declared one."""

from __future__ import annotations

import hashlib
from pathlib import Path

from transformer.errors import InputError


def sha256_of(path: Path) -> str:
    """The checksum of a file's bytes, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def verify(expected: str, found: str, origin: Path) -> None:
    """Refuse a file that has another checksum than the declared one.

    Raises:
        InputError: naming both, and the size that tells a file that was cut short.
    """
    if found != expected:
        raise InputError(
            f"{origin} is not the declared file: expected sha256 {expected}, found {found} "
            f"({origin.stat().st_size} bytes)"
        )
