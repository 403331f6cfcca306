"""Names that become folders."""

from __future__ import annotations

import re

from transformer.errors import InputError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def check_name(kind: str, name: str) -> None:
    """Refuse a name of a table, scale or row that cannot be a folder's.

    Raises:
        InputError: if it holds anything else than letters, digits, full stops and dashes.
    """
    if not _NAME.fullmatch(name):
        raise InputError(f"{kind} name {name!r} may hold letters, digits, '.', '_' and '-' only")
