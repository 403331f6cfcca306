"""Python files of a user's that declare a corpus, an experiment or a table."""

from __future__ import annotations

import importlib.util
import traceback
from pathlib import Path
from types import ModuleType

from transformer.errors import InputError


def load_file(path: Path, kind: str) -> ModuleType:
    """The module that a Python file is; it runs.

    Args:
        kind: what it is to declare, such as "table"

    Raises:
        InputError: if it is missing or fails, with the line where it does.
    """
    if not path.is_file():
        raise InputError(f"there is no {kind} file {path}")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise InputError(f"{path} cannot be loaded as Python")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except InputError as error:
        raise InputError(f"{path}{_line(error, spec.origin)}: {error}") from error
    except Exception as error:  # whatever a user's file does wrong is bad input here
        message = " ".join(f"{type(error).__name__}: {error}".split())
        raise InputError(f"{path}{_line(error, spec.origin)}: {message}") from error
    return module


def _line(error: Exception, file: str | None) -> str:
    """Where in the file it failed; a syntax error says so itself."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == file]
    return f", line {lines[-1]}" if lines else ""
