"""Measurements of layers, and the file that holds them."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median, quantiles

from ablations.files import LAYERS_FILE
from ablations.tables import table1 as paper
from transformer.config import from_dict
from transformer.files import read_json, to_json, write_atomically

_QUICK_WIDTH, _QUICK_LENGTH = 256, 512  # the sizes up to these take a minute together


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """All layers at one length and width, by name: their FLOPs and, for those that were timed, the
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

    def costs(self, name: str) -> dict[str, float]:
        """The costs of a layer: FLOPs and, if it was timed, medians, quartiles and bytes."""
        costs: dict[str, float] = {"flops": self.flops[name]}
        if name in self.memory:
            costs["forward_seconds"] = median(self.forward[name])
            costs["backward_seconds"] = median(self.backward[name])
            low, middle, high = quantiles(self.seconds(name), n=4)
            costs |= {"seconds": middle, "seconds_low": low, "seconds_high": high}
            costs |= {"memory_bytes": self.memory[name], "samples": len(self.forward[name])}
        return costs


@dataclass(kw_only=True, slots=True)
class Measurements:
    """The points measured on one device, and the counts of sequential operations and path lengths
    at each of ``STEP_LENGTHS``.
    """

    kind: str  # cpu or cuda
    device: str
    torch: str
    sequential: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    paths: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    points: list[Point] = field(default_factory=list[Point])

    def save(self, directory: Path) -> None:
        """Write the file, replacing an earlier one."""
        write_atomically(directory / LAYERS_FILE, to_json(asdict(self), indent=None))

    def lacking(self, quick: bool = False) -> list[tuple[int, int]]:
        """Width and length of each point that is not measured yet; only small ones if ``quick``."""
        wanted = [(d, n) for d in paper.WIDTHS for n in paper.LENGTHS]
        if quick:
            wanted = [(d, n) for d, n in wanted if d <= _QUICK_WIDTH and n <= _QUICK_LENGTH]
        measured = {(point.d, point.n) for point in self.points}
        return [size for size in wanted if size not in measured]

    def records(self) -> list[dict[str, int | float | str | None]]:
        """A record with the costs of each timed layer at each size."""
        return [
            {"layer": name, "n": point.n, "d": point.d, **point.costs(name)}
            for point in sorted(self.points, key=lambda point: (point.d, point.n))
            for name in point.memory
        ]


def load_measurements(directory: Path) -> Measurements:
    """The measurements of a directory."""
    path = directory / LAYERS_FILE
    return from_dict(Measurements, read_json(path), str(path))
