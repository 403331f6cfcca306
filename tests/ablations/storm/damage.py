"""Faults of a storm in files: a full disk, or a flipped bit."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random

from ablations.runs.attempts import locate
from experiments.command_line import BAD_INPUT
from tests.ablations.storm.place import Place
from tests.ablations.storm.processes import DriverProcess

# Another digit in these would go unnoticed, so the bit that is flipped makes them unreadable.
_WITHOUT_CHECKSUM = ("attempt.json", "config.json", "progress.json", "result.json")
_UNDER_WAY = ("*.json", "vocabulary.model", "checkpoints/step-*.ckpt")


@dataclass(frozen=True, slots=True)
class FlippedBit:
    """A file that was changed at ``moment``; ``cell`` is its run's directory, None of data."""

    path: Path
    cell: Path | None
    moment: float
    sound: bytes
    damaged: bytes

    def mend(self) -> None:
        """Restore the file, unless it has been replaced since."""
        path = self.path if self.cell is None else locate(self.cell) / self.path.name
        with suppress(FileNotFoundError):
            if path.read_bytes() == self.damaged:
                _overwrite(path, self.sound)


class Damage:
    """Flips bits in the files of a place, and restores those that a driver cannot make again.

    Attributes:
        unmended: what a driver must refuse by name, and has not yet
    """

    def __init__(self, place: Place, random: Random) -> None:
        self._place, self._random = place, random
        self.unmended: list[FlippedBit] = []

    def flip_bit_of_run(self) -> Path | None:
        """Flip one bit of a file of a run in progress, or of a result; the file."""
        stems = [cell.directory(self._place.out) for cell in self._place.cells]
        files = [
            (stem, path)
            for stem, directory in ((stem, locate(stem)) for stem in stems)
            for name in (("result.json",) if directory == stem else _UNDER_WAY)
            for path in directory.glob(name)
        ]
        if not files:
            return None
        kind = self._random.choice(sorted({path.suffix for _, path in files}))
        return self._flip(*self._random.choice(sorted(x for x in files if x[1].suffix == kind)))

    def flip_bit_of_data(self) -> Path | None:
        """Flip one bit of a prepared file or of a text, once a run has begun with them."""
        if not any(self._place.out.glob("*/seed-*/data.json")):
            return None
        prepared = [path for path in self._place.cache.glob("prepared/*/**/*") if path.is_file()]
        files = self._random.choice([prepared, list(self._place.texts.iterdir())])
        return self._flip(None, self._random.choice(sorted(files)))

    def _flip(self, cell: Path | None, path: Path) -> Path | None:
        sound = path.read_bytes()
        if not sound:
            return None
        damaged = bytearray(sound)
        bit = 0x80 if path.name in _WITHOUT_CHECKSUM else 1 << self._random.randrange(8)
        damaged[self._random.randrange(len(sound))] ^= bit
        _overwrite(path, bytes(damaged))
        if cell is None or path.name == "data.json":
            flipped = FlippedBit(path, cell, time.monotonic(), sound, bytes(damaged))
            self.unmended.append(flipped)
        return path

    def mend_refused(self, drivers: Sequence[DriverProcess]) -> list[Path]:
        """Restore the files that a later driver has refused by name; their paths."""
        refused: list[FlippedBit] = []
        for bit in self.unmended:
            later = [driver for driver in drivers if driver.started_at > bit.moment]
            words = [each.last_words() for each in later if each.process.poll() == BAD_INPUT]
            if any(bit.path.name in said for said in words):
                bit.mend()
                refused.append(bit)
        self.unmended = [bit for bit in self.unmended if bit not in refused]
        return [bit.path for bit in refused]


def _overwrite(path: Path, content: bytes) -> None:
    """Change the file in place: others may have it mapped into their memory."""
    with path.open("r+b") as file:
        file.write(content)


def fill_disk(pids: Iterable[int], size: int) -> None:
    """Let those processes write no file beyond ``size`` bytes, as if the disk were full."""
    for pid in pids:
        with suppress(ProcessLookupError):
            _, most = resource.prlimit(pid, resource.RLIMIT_FSIZE)
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, most))
