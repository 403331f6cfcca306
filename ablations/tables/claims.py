"""Rows that test what others found."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Unpack

from ablations.tables.changes import Changes
from ablations.tables.table import Row, row
from transformer.fields import Value


def claim(
    name: str,
    found: str,
    model: str | None = None,
    method: str | None = None,
    options: Mapping[str, Value] | None = None,
    **changes: Unpack[Changes],
) -> Row:
    """A row with what its source found, such as ``better``, or nothing where no source says.

    Args:
        model: a variant of the project as ``file:Class``, with ``options``
        method: a method of the project, named in the same way
    """
    model, method = (x and f"transformer.variants.{x}" for x in (model, method))
    return row(name, model=model, options=options, method=method, reference=found, **changes)
