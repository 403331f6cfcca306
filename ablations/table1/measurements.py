"""Measurements of layers, kept in one file of their directory."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Literal

from ablations.files import LAYERS_FILE, PLAN_FILE, SEARCH_FILE
from ablations.table1.paper import LENGTHS, WIDTHS
from experiments.records.experiment import CONFIG_FILE
from transformer.config import from_dict
from transformer.errors import InputError
from transformer.files import read_json, write_atomically


@dataclass(frozen=True, kw_only=True, slots=True)
class Timing:
    """Seconds of a pass forward and backward, a value for each sample, and bytes of memory."""

    forward: list[float]
    backward: list[float]
    memory: int

    @property
    def samples(self) -> list[float]:
        """Seconds forward and backward together."""
        return [there + back for there, back in zip(self.forward, self.backward, strict=True)]

    @property
    def seconds(self) -> float:
        """The median of the samples."""
        return median(self.samples)


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """All layers at one length and width; ``left_out`` has the seconds predicted for a pass."""

    n: int
    d: int
    commit: str
    flops: dict[str, int]
    layers: dict[str, Timing]
    left_out: dict[str, float]


@dataclass(frozen=True, kw_only=True, slots=True)
class Steps:
    """A count of dependent steps: ``sequential`` operations, or the length of a ``path``."""

    what: str
    name: str
    n: int
    steps: int


@dataclass(kw_only=True, slots=True)
class Measurements:
    """Points in the order of their widths and lengths, and counts of steps, of one device and
    version of torch.
    """

    kind: Literal["cpu", "cuda"]
    device: str
    torch: str
    steps: list[Steps] = field(default_factory=list[Steps])
    points: list[Point] = field(default_factory=list[Point])

    @property
    def summary(self) -> str:
        """The progress in half a sentence."""
        return (
            f"{len(self.points)} of {len(wanted_points())} pairs of length n and width d measured "
            f"on {self.device}"
        )

    def lacks(self, d: int, n: int) -> bool:
        """Whether there is no point of that width and length yet."""
        return all((point.d, point.n) != (d, n) for point in self.points)

    def add(self, point: Point) -> None:
        """Add a point in its place."""
        self.points.append(point)
        self.points.sort(key=lambda each: (each.d, each.n))

    def counts(self, what: str, name: str) -> dict[int, int]:
        """Counts of steps by length."""
        return {x.n: x.steps for x in self.steps if (x.what, x.name) == (what, name)}

    def predict(self, name: str, d: int, n: int, flops: int) -> float:
        """Seconds of a pass from those of the longest shorter input; 0 where there is none."""
        shorter = [x for x in self.points if x.d == d and x.n < n and name in x.layers]
        if not shorter:
            return 0.0
        return shorter[-1].layers[name].seconds * flops / shorter[-1].flops[name]

    def save(self, directory: Path) -> None:
        """Write all of them; after a kill the file is the whole old or new one."""
        write_atomically(directory / LAYERS_FILE, json.dumps(asdict(self), ensure_ascii=False))


def wanted_points(quick: bool = False) -> list[tuple[int, int]]:
    """Width and length of every point, or of those that a machine measures within a minute."""
    most = (256, 512) if quick else (max(WIDTHS), max(LENGTHS))
    return [(d, n) for d in WIDTHS for n in LENGTHS if d <= most[0] and n <= most[1]]


def load(directory: Path) -> Measurements:
    """Read the measurements of a directory.

    Raises:
        InputError: if it has none, or they cannot be read.
    """
    path = directory / LAYERS_FILE
    return from_dict(Measurements, read_json(path), str(path))


def claim(directory: Path, here: Measurements) -> Measurements:
    """What is measured in a directory already, or ``here``, which has no measurement yet.

    Raises:
        InputError: if it belongs to something else or was measured elsewhere.
    """
    for name in (PLAN_FILE, SEARCH_FILE, CONFIG_FILE):
        if (directory / name).exists():
            raise InputError(f"{directory} has other runs ({name}): choose another --directory")
    if not (directory / LAYERS_FILE).exists():
        return here
    found = load(directory)
    if (found.device, found.torch) != (here.device, here.torch):
        raise InputError(
            f"{directory} was measured on {found.device} with torch {found.torch}, but here are "
            f"{here.device} and torch {here.torch}: choose another --directory"
        )
    return found
