"""Load a user's Python files."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType

from transformer.errors import InputError, in_one_line


def load_file(path: Path, kind: str) -> ModuleType:
    """Run a Python file and return it as a module; it may import what lies in its folder.

    ``kind`` is what it should declare, such as "table", for the message.
    """
    if not path.is_file():
        raise InputError(f"there is no {kind} file {path}")
    name = f"file:{path.resolve()}"  # no name of another module
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InputError(f"{path} cannot be loaded as Python")
    if (folder := str(path.resolve().parent)) not in sys.path:
        sys.path.append(folder)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except InputError as error:
        raise InputError(f"{_place(error, path)}: {error}") from error
    except (Exception, SystemExit) as error:  # any failure of a user's file is bad input
        message = in_one_line(error)
        raise InputError(f"{_place(error, path)}: {message}") from error
    return module


def _place(error: BaseException, path: Path) -> str:
    """The file and line that failed, in a user's file or in one that it imports from its folder; a
    syntax error names its line itself.
    """
    frames = traceback.extract_tb(error.__traceback__)
    files = [x for x in frames if not x.filename.startswith("<")]  # as Python names its own code
    own = [x for x in files if Path(x.filename).resolve().parent == path.resolve().parent]
    return f"{own[-1].filename}, line {own[-1].lineno}" if own else str(path)
