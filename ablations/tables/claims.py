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
    """A row with what its source ``found``, such as ``better``; empty if there is no source.

    Args:
        model: one of the project's variants as ``file:Class``, with ``options``
        method: one of the project's methods, named in the same way
    """
    return row(
        name,
        model=_full_name(model),
        options=options,
        method=_full_name(method),
        reference=found,
        **changes,
    )


def _full_name(variant: str | None) -> str | None:
    return None if variant is None else f"transformer.variants.{variant}"
