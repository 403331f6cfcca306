"""What one part of the check finds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


def _ignore(_: Findings) -> None:
    pass


@dataclass
class Findings:
    """The findings of a part by name; a second finding of the same name replaces the first.

    Attributes:
        rows: cells of the table, for people
        figures: the same as JSON, for programs
        problems: comparisons beyond their limit, one line each
        report: called after each finding
    """

    rows: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    figures: dict[str, Any] = field(default_factory=dict[str, Any])
    problems: dict[str, str] = field(default_factory=dict[str, str])
    report: Callable[[Findings], None] = _ignore

    def add(self, name: str, *cells: str, figures: Any) -> None:
        """Add a row and its figures."""
        self.rows[name], self.figures[name] = cells, figures
        self.report(self)

    def compare(self, name: str, difference: float, limit: float) -> None:
        """Add a difference that may be ``limit`` at most; NaN is beyond any limit."""
        self.problems.pop(name, None)
        if not difference <= limit:
            self.problems[name] = f"{name}: {difference:.1e}, but at most {limit:.0e} is allowed"
        figures = {"difference": difference, "limit": limit}
        self.add(name, f"{difference:.1e}", f"at most {limit:.0e}", figures=figures)

    def as_dict(self) -> dict[str, Any]:
        """The findings without ``report``, as they are sent and saved."""
        return {"rows": self.rows, "figures": self.figures, "problems": self.problems}
