"""The programs ``experiments`` and ``ablations``, as scripts and by ``python -m``."""

from __future__ import annotations

import sys
from contextlib import suppress
from importlib.machinery import PathFinder
from pathlib import Path

_HERE = Path(__file__).resolve().parent


def experiments() -> int:
    """Carry out the command line of ``experiments`` and return its exit code."""
    _prepare_imports("transformer", "experiments")
    from experiments.cli import PROGRAM

    return PROGRAM.run()


def ablations() -> int:
    """Carry out the command line of ``ablations`` and return its exit code."""
    _prepare_imports("transformer", "experiments", "ablations")
    from ablations.cli import PROGRAM

    return PROGRAM.run()


def _prepare_imports(*packages: str) -> None:
    """Make modules of the working directory importable, as ``python -m`` does, and exit with 2 if
    something else there, or on ``sys.path``, has the name of one of our ``packages``.

    The processes of runs are started by ``python -m`` in the working directory, so a package there
    would be taken for ours even where a script was started.
    """
    folders = [*sys.path]
    with suppress(OSError):  # the working directory has been removed
        if not sys.flags.safe_path:
            folders.insert(0, str(Path.cwd()))
    for name in packages:
        if (place := _other(name, folders)) is not None:
            print(
                f"error: Python would import {place} in place of this project's {name}: rename it, "
                "work in another directory, or set PYTHONSAFEPATH=1",
                file=sys.stderr,
            )
            sys.exit(2)
    sys.path += [folder for folder in folders if folder not in sys.path]


def _other(name: str, folders: list[str]) -> Path | None:
    """What these folders have in the place of our package ``name``.

    They have nothing of an editable install, whose own finder Python asks last.
    """
    found = PathFinder.find_spec(name, folders)
    if found is None:
        return None
    # A folder without __init__.py has no origin.
    place = Path(found.origin or next(iter(found.submodule_search_locations or ("",))))
    return None if place.resolve().parent == _HERE / name else place
