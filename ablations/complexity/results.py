"""The measurements of a directory: one line of JSON each, added as soon as it is finished.

A kill loses one measurement at most. Importing this needs no torch.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Literal

from ablations.complexity.paper import KINDS, LENGTHS, NAMES, STEP_LENGTHS, WIDTHS
from ablations.files import LAYERS_FILE, PLAN_FILE, SEARCH_FILE
from experiments.run.experiment import CONFIG_FILE
from transformer.config import from_dict
from transformer.errors import InputError
from transformer.files import parse_json, read_json, write_atomically, write_json

MEASUREMENTS_FILE = "measurements.jsonl"
DAMAGED_FILE = "measurements.damaged.txt"
# To be raised when layers or their measuring change, so that old and new are not mixed.
VERSION = 1
# A layer whose pass would take longer, by its FLOPs and the time of a shorter input, is left out.
LIMIT_SECONDS = 3.0
# Samples of each layer at a point: the least, and the most where they are quick.
LEAST_SAMPLES, MOST_SAMPLES = 5, 15


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """What all measurements of a directory have in common."""

    kind: Literal["cpu", "cuda"]
    device: str
    torch: str
    version: int = VERSION


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
    """A count of dependent steps: sequential operations of a layer, or the length of a path."""

    what: Literal["sequential", "path"]
    name: str
    n: int
    steps: int


@dataclass(slots=True)
class Measurements:
    """What has been measured; ``damaged`` are lines that cannot be read."""

    setting: Setting
    points: dict[tuple[int, int], Point] = field(default_factory=dict[tuple[int, int], Point])
    steps: dict[tuple[str, str, int], int] = field(default_factory=dict[tuple[str, str, int], int])
    damaged: list[str] = field(default_factory=list[str])

    def add(self, record: Point | Steps) -> None:
        """Add a measurement, which replaces one of the same sizes."""
        if isinstance(record, Point):
            self.points[record.d, record.n] = record
        else:
            self.steps[record.what, record.name, record.n] = record.steps

    def predict(self, name: str, d: int, n: int, flops: int) -> float:
        """Seconds of a pass from those of the longest shorter input; 0 where there is none."""
        before = [
            point
            for length in LENGTHS
            if length < n and (point := self.points.get((d, length))) and name in point.layers
        ]
        if not before:
            return 0.0
        return before[-1].layers[name].seconds * flops / before[-1].flops[name]


def wanted_points(quick: bool = False) -> list[tuple[int, int]]:
    """Width and length of every point, short before long, as predictions need.

    ``quick`` are those that a machine measures within a minute.
    """
    most = (256, 512) if quick else (max(WIDTHS), max(LENGTHS))
    return [(d, n) for d in WIDTHS for n in LENGTHS if d <= most[0] and n <= most[1]]


def wanted_steps() -> list[Steps]:
    """Every count of steps, still without its result."""
    paths = [name for kind in KINDS for name, _ in kind.paths]
    return [
        *(Steps(what="sequential", name=x, n=n, steps=0) for x in NAMES for n in STEP_LENGTHS),
        *(Steps(what="path", name=x, n=n, steps=0) for x in paths for n in STEP_LENGTHS),
    ]


def load(directory: Path) -> Measurements:
    """Read the measurements of a directory.

    Raises:
        InputError: if it has none, or those of another version of the project.
    """
    path = directory / LAYERS_FILE
    if not path.is_file():
        raise InputError(f"{directory} has no measurements of Table 1: it has no {LAYERS_FILE}")
    found = Measurements(from_dict(Setting, read_json(path), str(path)))
    if found.setting.version != VERSION:
        raise InputError(
            f"{directory} was measured by version {found.setting.version} of Table 1, but this is "
            f"version {VERSION}: choose another --directory"
        )
    path = directory / MEASUREMENTS_FILE
    if not path.is_file():
        return found
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            values = parse_json(line.encode())
            found.add(from_dict(Steps if "what" in values else Point, values))
        except (ValueError, InputError):
            found.damaged.append(line)
    return found


def describe(directory: Path) -> str:
    """A line that says what a directory holds and how far it is.

    Raises:
        InputError: if it has no measurements of Table 1.
    """
    found = load(directory)
    return (
        f"Table 1, {len(found.points)} of {len(wanted_points())} lengths and widths measured on "
        f"{found.setting.device}: run table1 --directory {directory} continues, report shows it"
    )


def claim(directory: Path, setting: Setting) -> Measurements:
    """Make a directory that of these measurements, or read what it has and set damage aside.

    Raises:
        InputError: if it belongs to something else or was measured elsewhere.
    """
    for name, what in ((PLAN_FILE, "table"), (SEARCH_FILE, "search"), (CONFIG_FILE, "single run")):
        if (directory / name).exists():
            raise InputError(f"{directory} belongs to a {what}: choose another --directory")
    if not (directory / LAYERS_FILE).exists():
        write_json(directory / LAYERS_FILE, asdict(setting))
    found = load(directory)
    for what in ("device", "torch"):
        old, new = getattr(found.setting, what), getattr(setting, what)
        if old != new:
            raise InputError(
                f"{directory} was measured with another {what}, {old}, but here it is {new}: "
                "choose another --directory"
            )
    if found.damaged:
        with (directory / DAMAGED_FILE).open("a", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in found.damaged)
        lines = (directory / MEASUREMENTS_FILE).read_text("utf-8", "replace").splitlines()
        kept = "".join(f"{line}\n" for line in lines if line not in found.damaged)
        write_atomically(directory / MEASUREMENTS_FILE, kept)
    return found


def append(directory: Path, record: Point | Steps) -> None:
    """Add a measurement to the file, and wait until it is on disk."""
    with (directory / MEASUREMENTS_FILE).open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(record), ensure_ascii=False) + "\n")
        file.flush()
        os.fsync(file.fileno())
