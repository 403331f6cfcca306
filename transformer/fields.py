"""The types of fields and options, and what they take."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, get_args, get_origin

from transformer.corpus import Corpus

Value = int | float | str | None  # and bool, an int


class Options(tuple[tuple[str, Value], ...]):
    """The arguments of a class by name; ``dict(options)`` has them, files have a JSON object."""

    __slots__ = ()

    @classmethod
    def of(cls, values: Mapping[str, Value]) -> Options:
        """The options with these values, in the order of their names."""
        return cls(sorted(values.items()))


NO_OPTIONS = Options()


@cache  # typing is slow, and a report builds thousands of configurations
def takes(kind: Any) -> str:
    """The values that a field of this type takes, in words."""
    first, *others = _kinds(kind)
    words: dict[Any, str] = {bool: "true or false", int: "a whole number", float: "a number"}
    words |= {str: "a string", Corpus: "a Corpus", Options: "Options"}
    if get_origin(first) is Literal:
        words = {first: f"one of {', '.join(get_args(first))}"}
    return f"{words[first]} or none" if NoneType in others else words[first]


def fits(value: object, kind: Any) -> bool:
    """Whether a field of this type takes ``value``."""
    if value is None:
        return NoneType in _kinds(kind)
    if choices := _choices(kind):
        return value in choices
    first = _kinds(kind)[0]
    kinds = (int, float) if first is float else (first,)
    return isinstance(value, kinds) and isinstance(value, bool) == (first is bool)


@cache
def _choices(kind: Any) -> tuple[Any, ...]:
    """The values of a Literal; none for another type."""
    first = _kinds(kind)[0]
    return get_args(first) if get_origin(first) is Literal else ()


@cache
def _kinds(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if isinstance(kind, UnionType) else (kind,)
