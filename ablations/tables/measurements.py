"""Measurements of layers, and the file that has them."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median, quantiles
from typing import Literal

from ablations.files import LAYERS_FILE, check_free
from ablations.tables.table1 import LENGTHS, WIDTHS
from transformer.config import from_dict
from transformer.errors import InputError
from transformer.files import read_json, to_json, write_atomically

COLUMNS = (
    *("layer", "n", "d", "flops", "forward_seconds", "backward_seconds"),
    *("seconds", "seconds_low", "seconds_high", "memory_bytes", "samples"),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """All layers at one length and width, by name: their FLOPs; and for those that were timed the
    seconds of each sample and the bytes of memory.
    """

    n: int
    d: int
    commit: str
    flops: dict[str, int]
    forward: dict[str, list[float]]
    backward: dict[str, list[float]]
    memory: dict[str, int]

    def seconds(self, name: str) -> list[float]:
        """The seconds of each sample of a layer, forward and backward together."""
        pairs = zip(self.forward[name], self.backward[name], strict=True)
        return [there + back for there, back in pairs]


@dataclass(kw_only=True, slots=True)
class Measurements:
    """The points, and the dependent steps at each of ``STEP_LENGTHS``, on one device."""

    kind: Literal["cpu", "cuda"]
    device: str
    torch: str
    sequential: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    paths: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    points: list[Point] = field(default_factory=list[Point])

    def save(self, directory: Path) -> None:
        write_atomically(directory / LAYERS_FILE, to_json(asdict(self), indent=None))

    def lacking(self, quick: bool = False) -> list[tuple[int, int]]:
        """Width and length of the points that are wanted and not measured yet."""
        measured = {(point.d, point.n) for point in self.points}
        return [size for size in wanted_points(quick) if size not in measured]

    def records(self) -> list[dict[str, int | float | str | None]]:
        """All points: sizes, FLOPs, medians and quartiles in seconds, bytes."""
        rows: list[dict[str, int | float | str | None]] = []
        for point in sorted(self.points, key=lambda point: (point.d, point.n)):
            for name, bytes_ in point.memory.items():
                samples = point.seconds(name)
                low, middle, high = quantiles(samples, n=4)
                times = (median(point.forward[name]), median(point.backward[name]))
                sizes = (name, point.n, point.d, point.flops[name])
                cells = (*sizes, *times, middle, low, high, bytes_, len(samples))
                rows.append(dict(zip(COLUMNS, cells, strict=True)))
        return rows


def wanted_points(quick: bool = False) -> list[tuple[int, int]]:
    """Width and length of every point, or of those that take a minute in all."""
    most = (256, 512) if quick else (max(WIDTHS), max(LENGTHS))
    return [(d, n) for d in WIDTHS for n in LENGTHS if d <= most[0] and n <= most[1]]


def load_measurements(directory: Path) -> Measurements:
    """The measurements of a directory."""
    path = directory / LAYERS_FILE
    return from_dict(Measurements, read_json(path), str(path))


def continue_measurements(directory: Path, here: Measurements) -> Measurements:
    """The measurements of a directory, if they are of the same device and torch as ``here``; or
    ``here``, which has none yet.
    """
    check_free(directory, LAYERS_FILE)
    if not (directory / LAYERS_FILE).exists():
        return here
    found = load_measurements(directory)
    if (found.device, found.torch) != (here.device, here.torch):
        raise InputError(
            f"{directory} was measured on {found.device} with torch {found.torch}, but here are "
            f"{here.device} and torch {here.torch}: choose another --directory"
        )
    return found
