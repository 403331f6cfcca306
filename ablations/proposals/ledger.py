"""The ledger of proposals, in lines that stay."""

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
    """A line for a proposal that was tried.

    ``number`` and ``name`` are those of its row. ``classes`` are its as ``Class@digest``,
    ``settings`` what it changes in the base, options as ``Class.option``. ``base`` is the row that
    it was compared with, on ``base_seeds``. ``perplexities`` are by seed, None where training
    diverged; ``differences`` are of the logarithm of perplexity from the base's of the same seed.
    ``difference`` is that of the means, ``interval`` its interval with 1 - ``level``, and ``p`` is
    two-sided; they are None without a finished seed, and so is ``look`` for one that was not
    tested. ``scores`` are the logarithms that were compared, fewer than perplexities after an early
    end. ``reason`` says more, ``seconds`` are those of its runs together, and ``when`` is UTC.
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
    """A line for a proposal that was made the base, with the fresh ``seeds`` that it has as such.

    ``difference`` of the means of the logarithm of perplexity is from the base before.
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
        InputError: if a line but the last cannot be read.
    """

    def __init__(self, directory: Path) -> None:
        self.path = directory / LEDGER_FILE
        self.lines = tuple(_read_lines(self.path))

    @property
    def tried(self) -> dict[str, Tried]:
        """The newest line of each proposal, by its row."""
        return {line.name: line for line in self.lines if isinstance(line, Tried)}

    @property
    def adopted(self) -> list[Adopted]:
        """The proposals that were made the base."""
        return [line for line in self.lines if isinstance(line, Adopted)]

    def base(self, first_seeds: Sequence[int]) -> tuple[str, tuple[int, ...]]:
        """The row that is the base now, and its seeds; at first those of the base."""
        if not self.adopted:
            return BASE_ROW, tuple(first_seeds)
        return self.adopted[-1].name, self.adopted[-1].seeds

    def look(self, name: str) -> int:
        """How many proposals are tested, with the one of this row: each counts once."""
        before = {line.name: line.look for line in self.tried.values() if line.look is not None}
        return before.get(name) or 1 + max(before.values(), default=0)

    def spread(self, *, without: str = "") -> Spread:
        """The spread within the proposals, but for that of one row."""
        return spread_of([line.scores for line in self.tried.values() if line.name != without])

    def append(self, line: Tried | Adopted) -> None:
        """Add a line, which is on the disk when this returns."""
        if not self.path.exists():
            write_atomically(self.path, b"")  # so that the name survives a power cut too
        kept = _whole_part(self.path)
        with open_plain(self.path, "ab") as file:
            file.truncate(kept)  # what a kill or a full disk has left of a line
            file.write(to_json(to_dict(line), indent=None).encode())
            file.flush()
            os.fsync(file.fileno())
        self.lines = (*self.lines, line)


def _read_lines(path: Path) -> list[Tried | Adopted]:
    """The lines of a ledger; a last one without its end was never finished."""
    lines: list[Tried | Adopted] = []
    content = read_bytes(path)[: _whole_part(path)] if path.exists() else b""
    for number, text in enumerate(content.splitlines(), 1):
        where = f"{path}, line {number}"
        try:
            values = parse_json(text, where)
            lines.append(from_dict(Adopted if _ADOPTED in values else Tried, _typed(values), where))
        except InputError as error:
            reason = str(error).removesuffix("; delete it to have it made again")
            raise InputError(f"{reason}: restore the file") from error
    return lines


def _typed(values: dict[str, object]) -> dict[str, object]:
    verdict = values.get("verdict")
    known = [each for each in Verdict if each.value == verdict]
    return values | ({"verdict": known[0]} if known else {})


def _whole_part(path: Path) -> int:
    """How many bytes of a ledger are whole lines."""
    return read_bytes(path).rfind(b"\n") + 1 if path.exists() else 0
