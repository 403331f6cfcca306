"""The ledger of proposals, to which lines are only added."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ablations.proposals.decide import Spread, Verdict, spread_of
from ablations.tables.changes import Value
from transformer.config import from_dict, to_dict
from transformer.errors import InputError
from transformer.files import open_plain, parse_json, read_bytes, to_json, write_atomically

LEDGER_FILE = "ledger.jsonl"
BASE_ROW = "base"
_ADOPTED = "adopted"


@dataclass(frozen=True, kw_only=True, slots=True)
class Tried:
    """The line of a proposal that was tried.

    ``number`` and ``name`` are those of its row. ``classes`` are its classes as ``Class@digest``,
    ``settings`` what it changes in the base, with options as ``Class.option``. ``base`` is the row
    that it was compared with, on ``base_seeds``. ``perplexities`` are by seed, None where training
    diverged; ``differences`` are those of the logarithm of perplexity from the base's with the same
    seed. ``look`` is the number of the test, None if there was none. ``difference`` is that of the
    means, ``interval`` its confidence interval at 1 - ``level`` and ``p`` the two-sided p-value:
    None without a test or a finite score, ``interval`` and ``p`` also if a seed diverged.
    ``scores`` are the logarithms that were tested. ``reason`` says why a score or the verdict is
    missing, ``seconds`` is the total time of its runs, and ``when`` is UTC.
    """

    number: int
    name: str
    classes: tuple[str, ...]
    settings: dict[str, Value]
    seeds: tuple[int, ...]
    base: str
    base_seeds: tuple[int, ...]
    perplexities: dict[str, float | None] = field(default_factory=dict[str, float | None])
    differences: dict[str, float] = field(default_factory=dict[str, float])
    scores: tuple[float, ...] = ()
    difference: float | None = None
    interval: tuple[float, float] | None = None
    p: float | None = None
    level: float | None = None
    look: int | None = None
    verdict: Verdict
    reason: str = ""
    seconds: float
    when: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Adopted:
    """The line of a proposal that became the base, with the new ``seeds`` that it has as such.

    ``difference`` is that of the mean logarithms of perplexity from the base before.
    """

    adopted: int
    name: str
    seeds: tuple[int, ...]
    difference: float
    seconds: float
    when: str


class Ledger:
    """The lines of the ledger in a directory, oldest first.

    Raises:
        InputError: if a line cannot be read; an incomplete last line is ignored.
    """

    def __init__(self, directory: Path) -> None:
        self.path = directory / LEDGER_FILE
        self.lines = tuple(_read_lines(self.path))

    @property
    def tried(self) -> dict[str, Tried]:
        """The newest line of each proposal, by the name of its row."""
        return {line.name: line for line in self.lines if isinstance(line, Tried)}

    @property
    def adopted(self) -> list[Adopted]:
        """The proposals that became the base, oldest first."""
        return [line for line in self.lines if isinstance(line, Adopted)]

    def base(self, first_seeds: Sequence[int]) -> tuple[str, tuple[int, ...]]:
        """The current base's row and seeds; at first Table 3's base with ``first_seeds``."""
        if not self.adopted:
            return BASE_ROW, tuple(first_seeds)
        return self.adopted[-1].name, self.adopted[-1].seeds

    def look(self, name: str) -> int:
        """The number of a row's test: its own if it was tested before, else the next one."""
        return self._looks.get(name) or self.next_look

    @property
    def next_look(self) -> int:
        """The number of the next new proposal's test."""
        return 1 + max(self._looks.values(), default=0)

    @property
    def _looks(self) -> dict[str, int]:
        return {line.name: line.look for line in self.tried.values() if line.look is not None}

    def spread(self, *, without: str = "") -> Spread:
        """The spread within the proposals, leaving out one row's."""
        return spread_of([line.scores for line in self.tried.values() if line.name != without])

    def append(self, line: Tried | Adopted) -> None:
        """Add a line; it is on the disk when this returns."""
        if not self.path.exists():
            write_atomically(self.path, b"")  # so that the file's name also survives a power cut
        kept = _whole_part(self.path)
        with open_plain(self.path, "ab") as file:
            file.truncate(kept)  # removes what a kill or a full disk left of a line
            file.write(to_json(to_dict(line), indent=None).encode())
            file.flush()
            os.fsync(file.fileno())
        self.lines = (*self.lines, line)


def _read_lines(path: Path) -> list[Tried | Adopted]:
    """The lines of a ledger, without an incomplete last one."""
    lines: list[Tried | Adopted] = []
    content = read_bytes(path)[: _whole_part(path)] if path.exists() else b""
    for number, text in enumerate(content.splitlines(), 1):
        where = f"{path}, line {number}"
        try:
            values = parse_json(text, where)
            lines.append(from_dict(Adopted if _ADOPTED in values else Tried, _typed(values), where))
        except InputError as error:
            raise InputError(f"{error}: restore the file") from error
    return lines


def _typed(values: dict[str, object]) -> dict[str, object]:
    """The values of a line with its verdict as a ``Verdict``, if it is one."""
    found = values.get("verdict")
    return {**values, "verdict": Verdict(found)} if found in list(Verdict) else values


def _whole_part(path: Path) -> int:
    """The number of bytes up to the end of the last complete line."""
    return read_bytes(path).rfind(b"\n") + 1 if path.exists() else 0
