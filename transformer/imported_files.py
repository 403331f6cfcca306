"""The files that the process of a run has imported.

They are recorded for runs with classes of the user's own: the files that define these classes, and
those outside the environment and the project, such as files in a folder that was put on
``sys.path``. The run keeps their text; nothing is ever imported from it. Texts are compared as
syntax trees, without comments and docstrings, without tables and search spaces and, in the files
that :mod:`transformer.sources` has walked, without the classes and functions that it did not reach.
Data files that a class reads are not watched.
"""

from __future__ import annotations

import ast
import functools
import os
import re
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import Any

from transformer.config import from_dict, to_dict
from transformer.errors import InputError
from transformer.files import read_text
from transformer.sources import definitions, is_installed, is_main, module_file, statements_of
from transformer.variant import digest_of, is_own, source_file, split_name

# The version of these rules. A record made by another version is not compared.
_RULE = 1
_MOST_LETTERS = 1_000_000  # of one file; larger ones are left out
_MOST_IN_ALL = 4_000_000
_MOST_ABOVE = 2  # folders: files farther away are known by the names of their modules
_PROJECT = tuple(Path(__file__).parents[1] / x for x in ("transformer", "experiments", "ablations"))
_LIBRARIES = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib")}
_OF_ENVIRONMENT = tuple(f"{x}{os.sep}" for x in (*_LIBRARIES, *map(os.path.realpath, _LIBRARIES)))
_INSTALLED = re.compile(r"[/\\](site|dist)-packages[/\\]")
_DECLARED = {"TABLE", "SPACE"}
# With these a file may use what it does not name.
_REFLECTION = re.compile(
    r"(?<![\w.])(__import__|eval|exec|globals|locals|vars)\("
    r"|\b(sys\.modules|import_module|__init_subclass__|__subclasses__|metaclass)\b"
)
_Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, kw_only=True, slots=True)
class _Record:
    """The text of the files of a run with ``classes`` of the user's own.

    ``files`` has it by the module of a class and the path from that module's folder; a file that
    lies far from there has the name of its own module in place of a path.
    """

    rule: int = _RULE
    classes: tuple[str, ...]
    files: dict[str, dict[str, str]]


def source_record(names: Iterable[str]) -> dict[str, Any]:
    """The record of the source of the classes ``names``; empty if none is the user's own."""
    own = sorted({name for name in names if is_own(name)})
    if not own:
        return {}
    near = {path for name in own for path in _near(name, source_file(name))[1]}
    record = _Record(classes=tuple(own), files={split_name(name)[0]: {} for name in own})
    _add(record, [*((path, path.stem) for path in sorted(near)), *_imported()])
    return to_dict(record)


def with_imported(record: Mapping[str, Any]) -> dict[str, Any]:
    """The record with the files added that the process has imported since; others are unchanged."""
    if (found := _read(record)) is None:
        return dict(record)
    _add(found, _imported())
    return to_dict(found)


def _read(record: Mapping[str, Any]) -> _Record | None:
    """A record; None if another version of the rules made it, or it is damaged."""
    if record.get("rule") != _RULE:
        return None
    with suppress(InputError):
        return from_dict(_Record, {**record}, "the record of the source")
    return None


def places_of(record: Mapping[str, Any]) -> dict[str, str]:
    """Where the files of the classes of a record are on this machine, by their modules."""
    return {module: str(file) for module, file in _places(record["files"], {}).items()}


def has_changed_since(record: Mapping[str, Any], places: Mapping[str, Any] | None = None) -> bool:
    """Whether a file of a record is here and has changed, although the definitions of the classes
    are here and have not.

    Args:
        places: where the files of the classes were, for those whose place is not known now; none
            is imported
    """
    if (parsed := _read(record)) is None:
        return False
    here, needed, near = _places(parsed.files, places or {}), set[str](), set[Path]()
    try:
        for name in parsed.classes:
            if (file := here.get(split_name(name)[0])) is None:
                return False
            statements, paths = _near(name, file)
            if digest_of(statements) != split_name(name)[2]:
                return False
            needed |= statements
            near |= paths
        files = list(_compared(parsed, here))
    except (InputError, OSError, ValueError, RecursionError):  # not Python now
        return False
    texts = {text for path, before, now in files if path in near for text in (before, now)}
    walked = {_lines(text) for text in texts}
    reflects = any(_REFLECTION.search(line) for lines in walked for line, _ in lines)
    for path, before, now in files:
        reached = needed if path in near and not reflects else None
        if _kept(before, reached) != _kept(now, reached):
            return True
    return False


def _near(name: str, file: Path) -> tuple[set[str], set[Path]]:
    """The statements that define a class, and their files."""
    module, kind, _ = split_name(name)
    needed, paths = definitions(module, kind, file)
    return needed, set(map(_located, paths))


def _places(modules: Iterable[str], places: Mapping[str, Any]) -> dict[str, Path]:
    """The file of each module, as it is known here or else by ``places``."""
    found: dict[str, Path] = {}
    for module in modules:
        with suppress(InputError):
            found[module] = source_file(f"{module}:")
            continue
        file = Path(str(places.get(module, "")))
        if file.suffix == ".py" and file.is_file() and not file.is_symlink():
            found[module] = file
    return found


def _located(path: Path) -> Path:
    # The file itself may be a link, and stays one: its name is what is imported.
    return path.parent.resolve() / path.name


def _imported() -> Iterator[tuple[Path, str]]:
    """The files and names of imported modules outside the environment and the project."""
    found: dict[Path, str] = {}
    modules: dict[str, object] = {**sys.modules}
    for name, module in modules.items():
        if not isinstance(module, ModuleType):
            continue
        # Not by getattr, which would load a lazy module.
        file = object.__getattribute__(module, "__dict__").get("__file__")
        if not isinstance(file, str) or not file.endswith(".py"):
            continue
        if _is_of_environment(file):
            continue  # nearly all of thousands of modules
        path = _located(Path(file))
        if not _is_of_environment(str(path)) and not any(map(path.is_relative_to, _PROJECT)):
            is_import = name.replace(".", "").isidentifier() and not name.startswith("__")
            found[path] = name if is_import else found.get(path, path.stem)
    yield from sorted(found.items())


def _is_of_environment(file: str) -> bool:
    return file.startswith(_OF_ENVIRONMENT) or _INSTALLED.search(file) is not None


def _add(record: _Record, paths: Iterable[tuple[Path, str]]) -> None:
    """Add files with the names of their modules."""
    files = record.files
    folders = {module: _located(file).parent for module, file in _places(files, {}).items()}
    left = _MOST_IN_ALL - sum(len(text) for each in files.values() for text in each.values())
    for path, name in paths if folders else ():
        module, key = _portable(path, name, folders)
        text = None if key in files[module] else _text(path)
        if text is not None and len(text) <= min(left, _MOST_LETTERS):
            files[module][key] = text
            left -= len(text)


def _portable(path: Path, name: str, folders: Mapping[str, Path]) -> tuple[str, str]:
    """The module of a class, and the path of a file from there."""
    for module, folder in folders.items():
        if path.is_relative_to(folder):
            return module, path.relative_to(folder).as_posix()
    module, folder = next(iter(folders.items()))
    both = Path(os.path.commonpath([path, folder]))
    if both == Path(both.anchor) or len(folder.relative_to(both).parts) > _MOST_ABOVE:
        return module, name
    return module, Path(os.path.relpath(path, folder)).as_posix()


def _find(key: str, folder: Path) -> Path | None:
    """The file to which :func:`_portable` gave this name."""
    path = PurePosixPath(key)
    if key.endswith(".py"):
        if path.is_absolute() or ".." in path.parts[_MOST_ABOVE:]:
            return None
        return _located(folder / path)
    if not all(map(str.isidentifier, key.split("."))):
        return None
    # Not by importlib, which imports the packages above a module.
    files = (module_file(Path(entry), key) for entry in sys.path)
    return next((_located(file) for file in files if file is not None), None)


def _text(path: Path) -> str | None:
    try:
        return read_text(path.resolve())
    except (InputError, OSError, RuntimeError):
        return None


def _compared(record: _Record, places: Mapping[str, Path]) -> Iterator[tuple[Path, str, str]]:
    """Each file that is here, with its text in the record and its text now."""
    for module, file in places.items():
        for key, before in record.files[module].items():
            path = _find(key, _located(file).parent)
            now = None if path is None else _text(path)
            if path is not None and now is not None and len(before) <= _MOST_LETTERS:
                yield path, before, now


@functools.cache
def _lines(text: str) -> tuple[tuple[str, bool], ...]:
    """The statements of a file, and whether each may be left out."""
    try:
        found = statements_of(Path(), text.encode())
        if "__doc__" not in text:
            found = [each for each in found if not _is_text(each)]
        kept = [each for each in found if not is_main(each) and not _declares(each)]
        return tuple((ast.unparse(each), _may_be_left_out(each)) for each in kept)
    except (InputError, RecursionError, MemoryError):  # not Python
        return ((text, False),)


def _kept(text: str, reached: set[str] | None) -> list[str]:
    """The statements that count; ``reached`` are those that a walk through the file found."""
    return [x for x, may_go in _lines(text) if reached is None or not may_go or x in reached]


def _is_text(statement: ast.stmt) -> bool:
    """Whether it is a docstring, or text that does nothing."""
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _declares(statement: ast.stmt) -> bool:
    """Whether it binds a table or a search space."""
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    if isinstance(statement, ast.AnnAssign):
        targets = [statement.target]
    return any(isinstance(x, ast.Name) and x.id in _DECLARED for x in targets)


def _may_be_left_out(statement: ast.stmt) -> bool:
    """Whether it is a definition, or an import of what is installed."""
    if isinstance(statement, ast.ImportFrom):
        return not statement.level and _is_known(statement.module or "")
    if isinstance(statement, ast.Import):
        return all(_is_known(alias.name) for alias in statement.names)
    return isinstance(statement, _Definition)


def _is_known(module: str) -> bool:
    """Whether a module is of the environment or of the project."""
    names = {*sys.stdlib_module_names, *(path.name for path in _PROJECT)}
    return module.partition(".")[0] in names or is_installed(module)
