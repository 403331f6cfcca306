"""The statements that define a class.

These are the statements that bind a name which the class uses, those that these use in turn, and
what else changes them when the file is loaded: ``TABLE["a"] = 2``, ``setattr(Own, "x", 1)``, a
function that a decorator registers, a call such as ``torch.set_default_dtype``. They are looked for
in the class's file and in the modules and packages of its folder. Comments, docstrings and what the
class does not use do not count.

What modules elsewhere do, and what data files contain, is not seen.
"""

from __future__ import annotations

import ast
import functools
import importlib.metadata
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from transformer.errors import InputError

_IMPORTERS = ("import_module", "__import__")
_Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
_Import = ast.Import | ast.ImportFrom
# What may define or change names in its body.
_COMPOUND = (ast.If, ast.For, ast.While, ast.Try, ast.TryStar, ast.With, ast.Match)


def definitions(module: str, kind: str, file: Path) -> tuple[set[str], set[Path]]:
    """The statements that define the class ``kind``, and the files that they are in.

    Args:
        module: its name, whose package is the folder of ``file``
    """
    folder = _Folder(module.rpartition(".")[0], file.parent)
    left, seen, needed = [(file, kind)], set[tuple[Path, str]](), set[str]()
    while left:
        path, name = place = left.pop()
        if place in seen:
            continue
        seen.add(place)
        statements = statements_of(path, path.read_bytes())
        own = _own_names(tuple(statements))
        names = {each for at, each in seen if at == path}
        for statement in statements:
            if _binds(statement, name) or _changes(statement, names, own):
                needed.add(ast.unparse(statement))
                left += folder.imported(path, statement, name)
                left += [(path, x.id) for x in ast.walk(statement) if isinstance(x, ast.Name)]
    if not needed:
        raise InputError(f"there is no {kind} in {file}")
    return needed, {path for path, _ in seen}


@functools.cache
def statements_of(path: Path, source: bytes) -> list[ast.stmt]:
    """The statements of a file, without docstrings, unless the file reads some.

    Raises:
        InputError: if it is not Python.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError) as error:
        raise InputError(f"{path} cannot be read as Python: {error}") from error
    if b"__doc__" in source:
        return tree.body
    for node in ast.walk(tree):
        if isinstance(node, _Definition) and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return tree.body


@functools.cache
def _bound(statement: ast.stmt) -> frozenset[str]:
    """The names that a statement of a module defines."""
    if isinstance(statement, _Definition):
        return frozenset({statement.name})
    found: set[str] = set()
    for node in ast.walk(statement):
        if isinstance(node, _Definition):
            found.add(node.name)
        elif isinstance(node, _Import):
            found |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.MatchAs | ast.MatchStar) and node.name:
            found.add(node.name)
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            # An attribute may be set below its class.
            target = node.value if isinstance(node, ast.Attribute) else node
            if isinstance(target, ast.Name):
                found.add(target.id)
    return frozenset(found)


def _binds(statement: ast.stmt, name: str) -> bool:
    return bool({name, "*"} & _bound(statement))


@functools.cache
def _own_names(statements: tuple[ast.stmt, ...]) -> frozenset[str]:
    """The names that a file defines itself, and does not import."""
    own = (_bound(each) for each in statements if not isinstance(each, _Import))
    return frozenset[str]().union(*own)


def _changes(statement: ast.stmt, names: set[str], own: frozenset[str]) -> bool:
    """Whether a statement may change what the class is, though it binds none of its ``names``.

    A call such as ``ROWS.append(…)`` on one of the file's ``own`` names that the class does not use
    changes nothing; a call of anything else may change everything.
    """
    if isinstance(statement, _Definition):
        decorators = {_root(each) for each in statement.decorator_list}
        return bool(decorators & own)  # which may register it
    if is_main(statement):
        return False
    if isinstance(statement, ast.Expr):
        if not isinstance(statement.value, ast.Call):
            return False
        root = _root(statement.value)
        return root not in own or root in names
    if isinstance(statement, ast.Assign | ast.AugAssign | ast.AnnAssign):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        roots = set[str]().union(*map(_parts_set, targets))
        return bool(roots & names) or bool(roots - own)
    if isinstance(statement, _COMPOUND):
        return bool(_touched(statement) & names)
    return isinstance(statement, ast.Delete) and bool(_bound(statement) & names)


def _root(node: ast.AST) -> str:
    """The name at the left end: ``a`` of ``a.b[0](1)``."""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def _touched(statement: ast.stmt) -> set[str]:
    """The names whose objects a statement calls, or sets a part of."""
    calls = (node for node in ast.walk(statement) if isinstance(node, ast.Call))
    return {_root(call) for call in calls} | _parts_set(statement)


def _parts_set(node: ast.AST) -> set[str]:
    """The names whose objects have a part set or deleted, such as ``a`` in ``a[0], b = 1, 2``."""
    found: set[str] = set()
    for each in ast.walk(node):
        is_part = isinstance(each, ast.Attribute | ast.Subscript)
        if is_part and not isinstance(each.ctx, ast.Load):
            found.add(_root(each))
    return found


def is_main(statement: ast.stmt) -> bool:
    """Whether it is the part of a file that runs only as a script."""
    if not isinstance(statement, ast.If) or not isinstance(statement.test, ast.Compare):
        return False
    return _root(statement.test.left) == "__name__"


def module_file(folder: Path, module: str) -> Path | None:
    """The file of a module or a package below ``folder``, found without importing anything."""
    path = folder.joinpath(*module.split("."))
    files = (path / "__init__.py", path.with_name(f"{path.name}.py"))  # in Python's order
    return next((file for file in files if file.is_file()), None)


_installed_packages = functools.cache(importlib.metadata.packages_distributions)


def is_installed(module: str) -> bool:
    """Whether a module's package is installed; a file in the working directory is not."""
    package = module.partition(".")[0]
    return package == __package__ or package in _installed_packages()


@dataclass(frozen=True, slots=True)
class _Folder:
    """The folder of a class's file, which has the modules of ``package``."""

    package: str
    path: Path

    def imported(self, file: Path, statement: ast.stmt, name: str) -> Iterator[tuple[Path, str]]:
        """The names that a statement imports from the folder, with their files.

        Of a module that is imported as a whole these are all its names. Of an import that binds
        ``name``, only what it binds to that counts.
        """
        takes_all = isinstance(statement, _Definition) or not _binds(statement, name)
        for node in ast.walk(statement):
            if isinstance(node, ast.Call):
                yield from self._all_of(_called_module(node))
            if not isinstance(node, _Import):
                continue
            origin = self._origin(file, node) if isinstance(node, ast.ImportFrom) else ""
            for alias in node.names:
                bound = (alias.asname or alias.name).partition(".")[0]
                if not takes_all and bound not in (name, "*"):
                    continue
                module = f"{origin}.{alias.name}".strip(".")
                if self._find(module):
                    yield from self._all_of(module)
                elif path := self._find(origin):
                    yield path, name if bound == "*" else alias.name

    def _all_of(self, module: str) -> Iterator[tuple[Path, str]]:
        path = self._find(module)
        if path is not None:
            for statement in statements_of(path, path.read_bytes()):
                yield from ((path, name) for name in _bound(statement))

    def _origin(self, file: Path, node: ast.ImportFrom) -> str:
        """The module from which names are imported; empty for one above the folder."""
        if not node.level:
            return node.module or ""
        above = (*self.package.split("."), *file.parent.relative_to(self.path).parts)
        parts = above[: len(above) - node.level + 1]
        return ".".join(filter(None, (*parts, node.module))) if parts else ""

    def _find(self, module: str) -> Path | None:
        """The file of a module or a package, if it is in the folder."""
        if not module:
            return None
        if not self.package:
            return None if is_installed(module) else module_file(self.path, module)
        if not module.startswith(f"{self.package}."):
            return None
        return module_file(self.path, module.removeprefix(f"{self.package}."))


def _called_module(call: ast.Call) -> str:
    """The module that ``import_module("other")`` imports; empty for any other call."""
    function = call.func
    name = function.attr if isinstance(function, ast.Attribute) else _root(function)
    if name in _IMPORTERS and call.args and isinstance(call.args[0], ast.Constant):
        return str(call.args[0].value)
    return ""
