"""Read the options of a class from its source.

The source is not imported. Options are the keyword-only arguments of ``__init__``, each with an
annotation and a default; with ``**options`` those of the base class too. A base may be in the same
file, in another of its folder, or in an installed package.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from transformer.errors import InputError, unknown_name
from transformer.fields import NO_OPTIONS, Options, Value, fits, takes
from transformer.sources import module_file
from transformer.variant import class_name, source_of, split_name

_KINDS: dict[str, Any] = {"int": int, "float": float, "str": str, "bool": bool}


@dataclass(frozen=True, slots=True)
class Option:
    """An option of a class: its name, its type and its default."""

    name: str
    kind: Any
    default: Value

    def check(self, value: object) -> Value:
        """``value``, a whole number as a float if the type is float; other types are refused."""
        is_finite = not isinstance(value, float) or math.isfinite(value)
        if not fits(value, self.kind) or not is_finite:
            raise InputError(f"{self.name} is {value!r}, but must be {takes(self.kind)}")
        assert value is None or isinstance(value, int | float | str)
        if not isinstance(value, int) or not fits(0.5, self.kind):
            return value
        try:
            return float(value)
        except OverflowError as error:
            raise InputError(f"{self.name} is too large a number") from error


def declared_options(name: str) -> dict[str, Option]:
    """The options by name of the class called ``name``, as a configuration has it.

    Raises:
        InputError: for one that cannot be read, or a class that is not there.
    """
    module, kind, _ = split_name(name)
    return _options_of(module, kind, source_of(module)) or {}


def resolve(name: str, given: Mapping[str, object]) -> Options:
    """All options of the class called ``name``: the ``given`` ones and the defaults.

    Raises:
        InputError: for an unknown one, or one of the wrong type.
    """
    known = declared_options(name)
    for each in given:
        if not known:
            raise InputError(
                f"{class_name(name)} has no option {each}: write it as def __init__(self, config, "
                f"*, {each}: float = 1.0)"
            )
        if each not in known:
            raise unknown_name(f"option of {class_name(name)}", each, known)
    values = {x: option.check(given.get(x, option.default)) for x, option in known.items()}
    return Options.of(values) if values else NO_OPTIONS


def _options_of(
    module: str, kind: str, file: Path, *, before: float = math.inf
) -> dict[str, Option] | None:
    """The options of a class in a file; None if the class, or any ``__init__``, is not found.

    Args:
        before: the line before which the class is defined, as a later one may have its name
    """
    tree = ast.parse(file.read_bytes())
    classes = (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    found = [each for each in classes if each.name == kind and each.lineno < before]
    if not found:
        return None
    methods = [x for x in found[-1].body if isinstance(x, ast.FunctionDef)]
    own = next((x.args for x in methods if x.name == "__init__"), None)
    if own is not None and own.kwarg is None:
        return _read(own, kind)
    of_base = None
    for base in found[-1].bases:
        if of_base is None and isinstance(base, ast.Name):
            of_base = _options_of_base(module, base.id, file, tree, found[-1].lineno)
    return of_base if own is None else {**(of_base or {}), **_read(own, kind)}


def _options_of_base(
    module: str, base: str, file: Path, tree: ast.Module, before: int
) -> dict[str, Option] | None:
    """The options of a base class, which this file defines before a line, or imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and node.name == base and node.lineno < before:
            return _options_of(module, base, file, before=before)
        if not isinstance(node, ast.ImportFrom) or (node.level == 0 and node.module is None):
            continue
        for alias in node.names:
            if (alias.asname or alias.name) == base:
                found = _imported(module, node, file)
                return found and _options_of(found[0], alias.name, found[1])
    return None


def _imported(module: str, node: ast.ImportFrom, file: Path) -> tuple[str, Path] | None:
    """The name and the file of the module from which ``node`` imports, if it can be read."""
    inside = node.module or ""
    package = module.rpartition(".")[0]
    beside = module_file(file.parents[max(0, node.level - 1)], inside)
    if beside is not None:
        return f"{package}.{inside}" if node.level and package else inside, beside
    try:
        return inside, source_of(inside)
    except InputError:
        return None


def _read(arguments: ast.arguments, kind: str) -> dict[str, Option]:
    found: dict[str, Option] = {}
    for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        name = argument.arg
        if argument.annotation is None or default is None:
            raise InputError(
                f"option {name} of {kind} needs a type and a default, as in {name}: float = 1.0"
            )
        try:
            option = Option(name, _kind(argument.annotation), ast.literal_eval(default))
        except (ValueError, TypeError, SyntaxError, MemoryError) as error:
            text = f"{name}: {ast.unparse(argument.annotation)} = {ast.unparse(default)}"
            raise InputError(
                f"option {text} of {kind} cannot be read: its type is int, float, str, bool, one "
                'of them | None, or Literal["a", "b"], and its default a value written out'
            ) from error
        found[name] = Option(name, option.kind, option.check(option.default))
    return found


def _kind(node: ast.expr) -> Any:
    """The type that an annotation names; ValueError if it is not one that options may have."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return _kind(ast.parse(node.value, mode="eval").body)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        sides = [x for x in (node.left, node.right) if ast.unparse(x) != "None"]
        if len(sides) == 1 and isinstance(sides[0], ast.Name):
            return _kind(sides[0]) | None
    if isinstance(node, ast.Subscript) and ast.unparse(node.value).endswith("Literal"):
        inside = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        words = [ast.literal_eval(x) for x in inside]
        if all(isinstance(word, str) for word in words):
            return Literal[tuple(words)]
    if isinstance(node, ast.Name) and node.id in _KINDS:
        return _KINDS[node.id]
    raise ValueError(ast.unparse(node))
