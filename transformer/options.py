"""The arguments of a class that a configuration keeps."""

from __future__ import annotations

from collections.abc import Mapping

Value = int | float | str | None  # and bool, an int


class Options(tuple[tuple[str, Value], ...]):
    """The arguments of a class by name; ``dict(options)`` has them, files have a JSON object."""

    __slots__ = ()

    @classmethod
    def of(cls, values: Mapping[str, Value]) -> Options:
        """The options with these values, in the order of their names."""
        return cls(sorted(values.items()))


NO_OPTIONS = Options()
