"""The one exception that stands for bad input rather than a fault of ours."""

from __future__ import annotations

import difflib
import importlib.util
from collections.abc import Iterable


class InputError(Exception):
    """What a user gave cannot be used. The message is one line: what, where, and what to do.

    The entry points print it without a traceback and end with exit code 2.
    """


def unknown_name(kind: str, name: str, known: Iterable[str]) -> InputError:
    """An error for a name that is not among the known ones; offers the nearest right one."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(names)}"
    return InputError(f"unknown {kind} {name!r}: {hint}")


def require(library: str) -> None:
    """Check that a library is there that only exports need.

    Raises:
        InputError: if it is not installed.
    """
    if importlib.util.find_spec(library) is None:
        raise InputError(
            f"{library} is not installed: pip install '.[export]' in the project's folder"
        )
