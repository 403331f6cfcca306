"""Exceptions for bad input, without passwords in their messages."""

from __future__ import annotations

import difflib
import importlib.util
import re
from collections.abc import Iterable

# An address: its beginning, a user with a password, host and path, and a query, whose ending may
# say how to unpack the file.
_ADDRESS = re.compile(
    r"((?:[a-z][a-z0-9+.-]{0,30}:/|https?:)/)(?:[^\s/?#]*@)?([^\s?#]*)"
    r"([?#]\S*?(\.gz|\.xz|\.bz2)?(?=\s|$))?",
    re.IGNORECASE,
)


def without_secrets(text: str) -> str:
    """``text`` with its addresses as they may be shown and recorded.

    They lose user and password, and have ``?…`` in place of a query, which may hold a token.
    """

    def shown(address: re.Match[str]) -> str:
        start, place, query, ending = address.groups(default="")
        return f"{start}{place}?…{ending}" if query else f"{start}{place}"

    return _ADDRESS.sub(shown, text)


class InputError(Exception):
    """Invalid input from the user. The message is one line: what is wrong, where, what to do.

    The command lines print it without a traceback and exit with code 2. Its addresses lose their
    passwords.
    """

    def __init__(self, message: str) -> None:
        super().__init__(without_secrets(message))


class BlockedError(InputError):
    """What a run needs is missing, has changed or is in use.

    Once that is fixed, the same command continues.
    """


class VocabularySizeError(InputError):
    """The text does not allow a vocabulary of this size."""


def in_one_line(error: BaseException) -> str:
    """An exception of a user's code or of a library, as its type and message."""
    return " ".join(f"{type(error).__name__}: {error}".split())


def unknown_name(kind: str, name: str, known: Iterable[str]) -> InputError:
    """An error for a name that is not ``known``, which suggests the closest known one."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(names)}"
    return InputError(f"unknown {kind} {name!r}: {hint}")


def require(library: str, extra: str = "export") -> None:
    """Check that an optional library, which comes with ``extra`` of this project, is installed."""
    if importlib.util.find_spec(library) is None:
        raise InputError(
            f"{library} is not installed: pip install '.[{extra}]' in the project's folder"
        )
