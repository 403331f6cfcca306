"""Read a proposal, and keep a copy of its source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import Any

from ablations.files import check_name
from ablations.tables.changes import Value, class_changes, is_option, option_name
from ablations.tables.table import Reported, Row, Table
from ablations.tables.table3 import BASE
from transformer.config import OPTIONS_OF
from transformer.errors import InputError
from transformer.files import make_directory, write_atomically
from transformer.imported_files import source_record
from transformer.python_files import load_file
from transformer.sources import is_installed
from transformer.variant import class_name, load, source_file, split_name, trust, variant_name

CLASSES = "classes"  # the folder in which each proposal has a folder with its source


def read_proposal(what: str) -> Row:
    """The row of ``FILE.py:Class``, ``module:Class`` or ``FILE.py``, with its changes to Table 3's
    base.

    A file without a class name must have a table with one row besides its base, or a single class.

    Raises:
        InputError: if there is no proposal in it, or more than one.
    """
    if not what.endswith(".py"):
        module, _, kind = what.rpartition(":")
        if module and not module.endswith(".py") and not is_installed(module):
            raise InputError(f"{module} is not installed: give its file, as in FILE.py:{kind}")
        return _row_of_class(what)
    module = load_file(Path(what), "class or table")
    table = getattr(module, "TABLE", None)
    if isinstance(table, Table):
        return _row_of_table(what, table)
    names = _own_classes(module)
    if len(names) != 1:
        found = "no class that is a model or a method"
        if names:
            found = f"{len(names)} classes ({', '.join(names)}) that are models or methods"
        raise InputError(
            f"{what} has {found}, and no TABLE: choose a class, as in "
            f"{what}:{names[0] if names else 'MyTransformer'}"
        )
    return _row_of_class(f"{what}:{names[0]}")


def _own_classes(module: ModuleType) -> list[str]:
    """The names of the models and methods that a file defines and does not extend itself."""
    from transformer import Transformer, TransformerModule

    found: list[type[Any]] = []
    for value in vars(module).values():
        is_own = isinstance(value, type) and value.__module__ == module.__name__
        if is_own and issubclass(value, Transformer | TransformerModule) and value not in found:
            found.append(value)
    extended = {base for kind in found for base in kind.__mro__[1:]}
    return [kind.__name__ for kind in found if kind not in extended]


def _row_of_class(what: str) -> Row:
    from transformer import Transformer, TransformerModule

    name = variant_name(what)
    kind = load(name, object, "try")
    if kind in (Transformer, TransformerModule):
        raise InputError(f"{what} is the paper's own, which changes nothing: give a subclass")
    if issubclass(kind, Transformer):
        of = "model"
    elif issubclass(kind, TransformerModule):
        of = "method"
    else:
        raise InputError(
            f"{class_name(name)} in {source_file(name)} is neither a model (a subclass of "
            "Transformer) nor a method (a subclass of TransformerModule)"
        )
    check_name("row", class_name(name))
    return Row(name=class_name(name), reported=Reported(), changes=class_changes(of, name))


def _row_of_table(what: str, table: Table) -> Row:
    if table.base != BASE:
        raise InputError(
            f"{what}: its base is not Table 3's, with which proposals are compared: use BASE, and "
            "put your changes into the row"
        )
    if table.tune is not None:
        raise InputError(f"{what} tunes its rows, but try trains one learning rate: remove tune=")
    rows = [row for row in table.run_rows if row.changes]
    if len(rows) != 1:
        raise InputError(
            f"{what} has {len(rows)} rows besides its base, but one proposal is tried at a time: "
            "keep one"
        )
    return Row(name=rows[0].name, reported=Reported(), changes=rows[0].changes)


def on_base(row: Row, base: dict[str, Value]) -> Row:
    """The row's changes on top of the ``base``'s; its classes replace those with their options."""
    replaced = [str(base[of]) for of in OPTIONS_OF if of in row.changes and base.get(of)]
    prefixes = tuple(option_name(name, "") for name in replaced)  # such as "MyTransformer."
    kept = {
        name: value
        for name, value in base.items()
        if not (is_option(name) and name.startswith(prefixes))
    }
    return replace(row, changes={**kept, **row.changes})


def keep_sources(root: Path, number: int, row: Row, base: Mapping[str, Value]) -> Row:
    """The row with classes from the user's files replaced by copies in ``root``.

    So a file may be edited while it is tried, and tried again; each version is a proposal of its
    own.

    Args:
        base: the changes of the base's row, whose classes may be used together with these

    Raises:
        InputError: if two files of one name that such classes import differ, as Python has one
            module of a name.
    """
    names = {of: str(name) for of in OPTIONS_OF if (name := row.changes.get(of))}
    own = {of: name for of, name in names.items() if not is_installed(split_name(name)[0])}
    texts = _texts_of_base(root, base)
    copied: dict[PurePosixPath, bytes] = {}
    for name in own.values():
        for path, text in _files_of(name).items():
            copied[path] = text
            if text != source_file(name).read_bytes() and texts.setdefault(path, text) != text:
                raise InputError(
                    f"{path} of {class_name(name)} differs from the file of that name which "
                    "another class of this proposal or of its base imports: rename it"
                )
    folder = root / CLASSES / str(number)
    for path, text in copied.items():
        make_directory((folder / path).parent)
        write_atomically(folder / path, text)
    copies = {of: _copy(name, folder, number) for of, name in own.items()}
    return replace(row, changes={**row.changes, **copies})


def _files_of(name: str) -> dict[PurePosixPath, bytes]:
    """The Python files that define a class, by their paths from its folder."""
    found: dict[PurePosixPath, bytes] = {}
    for key, text in source_record([name])["files"][split_name(name)[0]].items():
        path = PurePosixPath(key)
        if path.suffix == ".py" and ".." not in path.parts and not path.is_absolute():
            found[path] = text.encode()
    return found


def _texts_of_base(root: Path, base: Mapping[str, Value]) -> dict[PurePosixPath, bytes]:
    """The files that the classes of the base import, from their copies."""
    found: dict[PurePosixPath, bytes] = {}
    for copy in _copies(root, base):
        for path in copy.parent.rglob("*.py"):
            if path.read_bytes() != copy.read_bytes():
                found[PurePosixPath(path.relative_to(copy.parent).as_posix())] = path.read_bytes()
    return found


def _copy(name: str, folder: Path, number: int) -> str:
    """Copy the file of a class; return its name in the copy, whose file name is unique."""
    _, kind, digest = split_name(name)
    file = source_file(name)
    make_directory(folder)
    copy = folder / f"{kind}_{number}.py"
    write_atomically(copy, file.read_bytes())
    found = variant_name(f"{copy}:{kind}")
    if split_name(found)[2] != digest:
        raise InputError(f"{file} was just edited, or cannot be copied: try again")
    return found


def trust_copies(root: Path, changes: Mapping[str, Value]) -> None:
    """Let the classes of a row be imported from their copies.

    Raises:
        InputError: if one is missing.
    """
    trust(*_copies(root, changes))


def _copies(root: Path, changes: Mapping[str, Value]) -> list[Path]:
    """The copies of a row's classes; the name of each ends with the number of its proposal."""
    copies: list[Path] = []
    for of in OPTIONS_OF:
        module = split_name(str(changes.get(of) or ""))[0]
        if not module or is_installed(module):
            continue
        copy = root / CLASSES / module.rpartition("_")[2] / f"{module}.py"
        if not copy.is_file():
            raise InputError(f"{copy} is missing: restore it")
        copies.append(copy)
    return copies
