"""What happens to files in a storm: no room for more, or a bit that is no longer what it was."""

from __future__ import annotations

import resource
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random

from ablations.attempts import newest
from tests.ablations.storm.place import Place

# Nothing tells a digit of these from another one, so the bit that is flipped makes them unreadable.
_WITHOUT_CHECKSUM = ("attempt.json", "config.json", "metrics.csv", "progress.json", "result.json")
_UNDER_WAY = ("*.json", "metrics.csv", "vocabulary.model", "checkpoints/step-*.ckpt")
_KINDS = (".ckpt", ".ckpt", ".json", ".json", ".csv", ".model")
# What a fleet cannot make again by itself: it refuses to go on until somebody restores the file.
_ONLY_RESTORED = ("data.json",)


@dataclass(frozen=True, slots=True)
class FlippedBit:
    """A file that is not what it was; ``cell`` is the stem of the run that it is of."""

    path: Path
    cell: Path | None
    sound: bytes
    damaged: bytes

    @property
    def must_be_mended(self) -> bool:
        """Whether the fleet must refuse it by name, if it reads it at all."""
        return self.cell is None or self.path.name in _ONLY_RESTORED

    def mend(self) -> None:
        """Restore the file, unless it has been replaced since."""
        path = self.path
        if self.cell is not None and (directory := newest(self.cell)):
            path = directory / path.name
        with suppress(FileNotFoundError):
            if path.read_bytes() == self.damaged:
                _overwrite(path, self.sound)


def flip_bit_of_run(place: Place, random: Random) -> FlippedBit | None:
    """Flip one bit of a file of a run that is under way, or of a result; None if there is none."""
    cells = {cell.directory(place.out): newest(cell.directory(place.out)) for cell in place.cells}
    files = [
        (stem, path)
        for stem, directory in cells.items()
        if directory is not None
        for name in (("result.json",) if directory == stem else _UNDER_WAY)
        for path in directory.glob(name)
    ]
    kinds = [kind for kind in _KINDS if any(path.suffix == kind for _, path in files)]
    kind = random.choice(kinds) if kinds else ""
    chosen = [each for each in files if each[1].suffix == kind]
    return _flip(*random.choice(sorted(chosen)), random) if chosen else None


def flip_bit_of_data(place: Place, random: Random) -> FlippedBit | None:
    """Flip one bit of a prepared file or of a text; None if no run has begun with them yet."""
    prepared = [path for path in place.cache.glob("prepared/*/**/*") if path.is_file()]
    files = random.choice([prepared, list(place.texts.iterdir())])
    if not any(place.out.glob("*/seed-*/data.json")):
        return None
    return _flip(None, random.choice(sorted(files)), random) if files else None


def _flip(cell: Path | None, path: Path, random: Random) -> FlippedBit | None:
    sound = path.read_bytes()
    if not sound:
        return None
    damaged = bytearray(sound)
    bit = 0x80 if path.name in _WITHOUT_CHECKSUM else 1 << random.randrange(8)
    damaged[random.randrange(len(sound))] ^= bit
    _overwrite(path, bytes(damaged))
    return FlippedBit(path, cell, sound, bytes(damaged))


def _overwrite(path: Path, content: bytes) -> None:
    """Change it where it is: others may have it mapped into their memory."""
    with path.open("r+b") as file:
        file.write(content)


def fill_disk(pids: Iterable[int], size: int) -> None:
    """Let those processes write no file beyond ``size`` bytes, as if the disk were full."""
    for pid in pids:
        with suppress(ProcessLookupError):
            _, most = resource.prlimit(pid, resource.RLIMIT_FSIZE)
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, most))
