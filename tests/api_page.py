"""docs/api.md, made from signatures and docstrings by ``make api``."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from typing import Any

from transformer import Config, Corpus, InputError

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "api.md"
_PACKAGES = ("transformer", "ablations.tables", "ablations.search")
_HEAD = """# API

The public names by package, each with its signature and its docstring's first paragraph; a name
leads to its source. [Library](library.md), [Tables](tables.md) and [Search](search.md) show them in
use. `make api` writes this page.
"""


def page() -> str:
    """The page as it should be."""
    return "\n".join([_HEAD, *map(_section, _PACKAGES)])


def _section(package: str) -> str:
    module = importlib.import_module(package)
    entries = "\n".join(_entry(name, getattr(module, name)) for name in module.__all__)
    return f"## {package}\n\n{entries}\n"


def _entry(name: str, value: Any) -> str:
    if isinstance(value, Corpus):
        pair = f"{value.source_language}-{value.target_language}"
        return f"- `{name}: Corpus` {pair}; {value.licence}."
    if isinstance(value, Config):
        return f"- `{name}: Config` The paper's base model and training."
    source = Path(inspect.getfile(inspect.unwrap(value))).relative_to(ROOT)
    summary = " ".join((inspect.getdoc(value) or "").split("\n\n")[0].split())
    said = re.sub(r":\w+:`~?([^`]+)`", r"`\1`", summary).replace("``", "`")
    return f"- [`{name}`](../{source}) `{_signature(value)}` {said}"


class _Plain(str):
    """Text that a signature shows without quotes."""

    __repr__ = str.__str__


def _signature(value: Any) -> str:
    if value is InputError:  # Python gives a built-in exception none
        return "(message: str)"
    signature = inspect.signature(value)
    returned = signature.empty if inspect.isclass(value) else _Plain(signature.return_annotation)
    parameters = [
        parameter.replace(annotation=_Plain(parameter.annotation), default=_default(parameter))
        for parameter in signature.parameters.values()
    ]
    return str(signature.replace(parameters=parameters, return_annotation=returned))


def _default(parameter: inspect.Parameter) -> object:
    plain = (int, float, str, tuple, type(None))
    keep = parameter.default is parameter.empty or isinstance(parameter.default, plain)
    return parameter.default if keep else _Plain("…")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
