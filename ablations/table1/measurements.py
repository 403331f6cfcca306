"""Measurements of layers, kept in one file of their directory."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

from ablations.files import LAYERS_FILE, PLAN_FILE, SEARCH_FILE
from ablations.table1.paper import LENGTHS, WIDTHS
from experiments.records.experiment import CONFIG_FILE
from transformer.config import from_dict
from transformer.errors import InputError
from transformer.files import read_json, write_atomically


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """All layers at one length and width: FLOPs; and of those timed, the seconds ``forward`` and
    ``backward`` of each sample and bytes of memory.
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
    """Points, and dependent steps at the ``STEP_LENGTHS``, of one device and version of torch."""

    kind: Literal["cpu", "cuda"]
    device: str
    torch: str
    sequential: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    paths: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    points: list[Point] = field(default_factory=list[Point])

    @property
    def summary(self) -> str:
        """The progress in half a sentence."""
        return (
            f"{len(self.points)} of {len(wanted_points())} pairs of length n and width d measured "
            f"on {self.device}"
        )

    def save(self, directory: Path) -> None:
        """Write all of them; after a kill the file is the whole old or new one."""
        write_atomically(directory / LAYERS_FILE, json.dumps(asdict(self), ensure_ascii=False))


def wanted_points(quick: bool = False) -> list[tuple[int, int]]:
    """Width and length of every point, or of those that a machine measures within a minute."""
    most = (256, 512) if quick else (max(WIDTHS), max(LENGTHS))
    return [(d, n) for d in WIDTHS for n in LENGTHS if d <= most[0] and n <= most[1]]


def load(directory: Path) -> Measurements:
    """Read the measurements of a directory."""
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
