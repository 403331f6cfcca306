"""What a part of the check finds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from experiments.benchmark.timing import Row


@dataclass
class Findings:
    """Rows for people, figures for programs, and in what the device differs from the CPU.

    Attributes:
        rows: what, the figure, and what it is compared with
        figures: the same as JSON
        wrong: a line for each comparison beyond its limit
    """

    rows: list[Row] = field(default_factory=list[Row])
    figures: dict[str, Any] = field(default_factory=dict[str, Any])
    wrong: list[str] = field(default_factory=list[str])

    def compare(self, what: str, difference: float, limit: float) -> None:
        """Note a difference that may be ``limit`` at most; NaN is beyond any limit."""
        self.rows.append((what, f"{difference:.1e}", f"at most {limit:.0e}"))
        self.figures[what] = {"difference": difference, "limit": limit}
        if not difference <= limit:
            self.wrong.append(f"{what}: {difference:.1e}, but at most {limit:.0e} is allowed")
