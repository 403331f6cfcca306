"""Options, model sizes, timing in turn, and printing."""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import torch

from bench.workload import Workload, wait_for
from experiments.devices import default_device, device_name
from experiments.records.provenance import commit, versions
from transformer.config import Config, DataConfig, ModelConfig, TrainingConfig
from transformer.data.corpora.declared import MULTI30K_EN_DE

Item = TypeVar("Item")
Size = Literal["tiny", "base", "big"]
Numbers = dict[str, Any]

SIZES: dict[str, ModelConfig] = {
    "tiny": ModelConfig(num_layers=3, d_model=128, d_ff=512, num_heads=8, d_k=16, d_v=16),
    "base": ModelConfig(),
    "big": ModelConfig(d_model=1024, d_ff=4096, num_heads=16, dropout=0.3),
}


def run(measure: Callable[..., Numbers], turns: int, **flags: str) -> None:
    """Measure with the options given on the command line, and report the numbers.

    Args:
        measure: takes the ``size``, the ``device``, the ``turns`` and each of the ``flags``
        turns: the default number of turns
        flags: further options, which are on or off, and their help
    """
    name = Path(sys.argv[0]).stem
    words = sys.modules[measure.__module__].__doc__
    parser = argparse.ArgumentParser(prog=f"python -m bench.{name}", description=words)
    default = default_device().type
    size = "base" if default == "cuda" else "tiny"
    add = parser.add_argument
    devices = "device to measure (default: %(default)s)"
    add("--device", choices=("cpu", "cuda"), default=default, help=devices)
    add("--size", choices=SIZES, default=size, help="size of the model (default: %(default)s)")
    add("--turns", type=int, default=turns, help="number of timed turns (default: %(default)s)")
    add("--output", type=Path, metavar="FILE", help="also write the numbers to this file")
    for flag, use in flags.items():
        add(f"--{flag}", action="store_true", help=use)
    given = parser.parse_args()
    if given.device == "cuda" and not torch.cuda.is_available():
        parser.error("torch finds no GPU here; use --device cpu")
    if given.turns < 1:
        parser.error(f"--turns is {given.turns}, but must be at least 1")
    device, chosen = torch.device(given.device), {flag: getattr(given, flag) for flag in flags}
    numbers = measure(given.size, device, given.turns, **chosen)
    hardware, load = device_name(device), workload(device)
    print(f"{name}, {given.size}, {load.text}, {hardware}")
    for line in lines_of(numbers):
        print(f"  {line}")
    if given.output is not None:
        about = {"size": given.size, "workload": load, "device": hardware}
        about |= {name: numbers, "commit": commit(), "versions": versions()}
        given.output.parent.mkdir(parents=True, exist_ok=True)
        given.output.write_text(json.dumps(about, indent=2, default=asdict) + "\n")


def workload(device: torch.device) -> Workload:
    """Captions in small batches for a CPU, news in the paper's batches for a GPU."""
    if device.type == "cpu":
        return Workload(text="multi30k", vocab_size=8_000, tokens_per_batch=2_000)
    return Workload(text="news", vocab_size=37_000, tokens_per_batch=25_000, copies=32)


def config_of(size: Size, load: Workload) -> Config:
    """The configuration of a model of that size; its corpus is never read."""
    return Config(
        model=dataclasses.replace(SIZES[size], vocab_size=load.vocab_size),
        data=DataConfig(corpus=MULTI30K_EN_DE, tokens_per_batch=load.tokens_per_batch),
        training=TrainingConfig(seed=1),
    )


@dataclass(frozen=True, slots=True)
class Ratio:
    """The median over the turns, with quartiles."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.low:.2f} to {self.high:.2f})"


def ratio_of(above: Sequence[float], below: Sequence[float]) -> Ratio:
    """``above / below``, turn by turn."""
    ratios = [a / b for a, b in zip(above, below, strict=True)]
    if len(ratios) == 1:
        return Ratio(ratios[0], ratios[0], ratios[0])
    low, median, high = statistics.quantiles(ratios, n=4)
    return Ratio(median, low, high)


def in_turn(
    items: Iterable[Item], *functions: Callable[[Item], object], device: torch.device
) -> list[list[float]]:
    """Seconds that each function takes for each item; for each item, all are called in turn."""
    times: list[list[float]] = [[] for _ in functions]
    for item in items:
        for function, seconds in zip(functions, times, strict=True):
            wait_for(device)
            start = time.perf_counter()
            function(item)
            wait_for(device)
            seconds.append(time.perf_counter() - start)
    return times


def lines_of(numbers: Mapping[str, Any]) -> Iterator[str]:
    """A line for each number, with its name."""
    for name, value in numbers.items():
        if isinstance(value, dict):
            yield f"{name.replace('_', ' ')}:"
            yield from (f"  {_text(entry):>10}  {key}" for key, entry in value.items())
        else:
            yield f"{name.replace('_', ' '):34} {_text(value)}"


def _text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
