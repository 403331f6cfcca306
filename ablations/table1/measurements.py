"""The measurements of a directory: a line of JSON each."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Literal

from ablations.files import LAYERS_FILE, PLAN_FILE, SEARCH_FILE
from ablations.table1.paper import LENGTHS, WIDTHS
from experiments.run.experiment import CONFIG_FILE
from transformer.config import from_dict
from transformer.errors import InputError
from transformer.files import parse_json, read_json, write_atomically, write_json

MEASUREMENTS_FILE = "measurements.jsonl"


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """The device and the version of torch that all measurements of a directory share."""

    kind: Literal["cpu", "cuda"]
    device: str
    torch: str


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


@dataclass(slots=True)
class Measurements:
    """The measurements of a directory: points by width and length, and counts of steps."""

    setting: Setting
    points: dict[tuple[int, int], Point] = field(default_factory=dict[tuple[int, int], Point])
    steps: dict[tuple[str, str, int], Steps] = field(
        default_factory=dict[tuple[str, str, int], Steps]
    )

    @property
    def summary(self) -> str:
        """The progress in half a sentence."""
        return (
            f"{len(self.points)} of {len(wanted_points())} pairs of length n and width d measured "
            f"on {self.setting.device}"
        )

    def add(self, record: Point | Steps) -> None:
        """Add a measurement, in place of one of the same sizes."""
        if isinstance(record, Point):
            self.points[record.d, record.n] = record
        else:
            self.steps[record.what, record.name, record.n] = record

    def counts(self, what: str, name: str) -> dict[int, int]:
        """Counts of steps by length."""
        return {x.n: x.steps for x in self.steps.values() if (x.what, x.name) == (what, name)}

    def predict(self, name: str, d: int, n: int, flops: int) -> float:
        """Seconds of a pass from those of the longest shorter input; 0 where there is none."""
        shorter = [
            point
            for (width, length), point in self.points.items()
            if width == d and length < n and name in point.layers
        ]
        if not shorter:
            return 0.0
        last = max(shorter, key=lambda point: point.n)
        return last.layers[name].seconds * flops / last.flops[name]

    def save(self, directory: Path) -> None:
        """Write all of them; after a kill the file is the whole old or new one."""
        records: Iterable[Steps | Point] = (*self.steps.values(), *self.points.values())
        lines = (json.dumps(asdict(record), ensure_ascii=False) + "\n" for record in records)
        write_atomically(directory / MEASUREMENTS_FILE, "".join(lines))


def wanted_points(quick: bool = False) -> list[tuple[int, int]]:
    """Width and length of every point, or of those that a machine measures within a minute."""
    most = (256, 512) if quick else (max(WIDTHS), max(LENGTHS))
    return [(d, n) for d in WIDTHS for n in LENGTHS if d <= most[0] and n <= most[1]]


def load(directory: Path) -> Measurements:
    """Read the measurements of a directory.

    Raises:
        InputError: if it has none, or a line that cannot be read.
    """
    setting, path = directory / LAYERS_FILE, directory / MEASUREMENTS_FILE
    found = Measurements(from_dict(Setting, read_json(setting), str(setting), strict=False))
    lines = path.read_bytes().splitlines() if path.exists() else []
    for number, line in enumerate(lines, start=1):
        try:
            values = parse_json(line)
            found.add(from_dict(Steps if "what" in values else Point, values))
        except (ValueError, InputError) as error:
            raise InputError(
                f"{path}, line {number} cannot be read ({error}): delete that line, and run table1 "
                "measures it again"
            ) from error
    return found


def claim(directory: Path, setting: Setting) -> Measurements:
    """Make a directory that of these measurements, or read what it has.

    Raises:
        InputError: if it belongs to something else or was measured elsewhere.
    """
    for name, what in ((PLAN_FILE, "table"), (SEARCH_FILE, "search"), (CONFIG_FILE, "single run")):
        if (directory / name).exists():
            raise InputError(f"{directory} belongs to a {what}: choose another --directory")
    if not (directory / LAYERS_FILE).exists():
        write_json(directory / LAYERS_FILE, asdict(setting))
    found = load(directory)
    if found.setting != setting:
        raise InputError(
            f"{directory} was measured on {found.setting.device} with torch {found.setting.torch}, "
            f"but here are {setting.device} and torch {setting.torch}: choose another --directory"
        )
    return found
