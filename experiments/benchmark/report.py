"""The benchmark of training, memory, decoding and batching: its table and its JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import torch

from experiments.benchmark.batching import DataSpeed, measure_data
from experiments.benchmark.decoding import DecodingSpeed, measure_decoding
from experiments.benchmark.growth import MemoryGrowth, measure_growth
from experiments.benchmark.training import TrainingSpeed, measure_training
from experiments.benchmark.workload import Size, workload
from experiments.run.devices import default_device, device_name
from experiments.run.provenance import commit, versions
from transformer.errors import InputError
from transformer.files import write_json

What = Literal["train", "memory", "decode", "data"]
Speed = TrainingSpeed | MemoryGrowth | DecodingSpeed | DataSpeed

# Steps by size and kind of device, and rounds of what is not training: some minutes for each.
_TURNS = {"cpu": {"tiny": 40, "base": 8, "big": 4}, "cuda": {"tiny": 100, "base": 50, "big": 30}}
_GROWTH_STEPS = {
    "cpu": {"tiny": 1_000, "base": 100, "big": 30},
    "cuda": {"tiny": 1_000, "base": 1_000, "big": 300},
}
_ROUNDS = 5


def benchmark(
    size: Size | None,
    device_type: str | None,
    what: What | None,
    turns: int | None,
    compile: bool,
    output: Path,
) -> None:
    """Measure, print a table, and write ``output``.

    Args:
        size: None for ``tiny`` on a CPU and ``base`` on a GPU
        device_type: None for a GPU if there is one
        what: None for everything
        turns: how often each is timed; None for some minutes' worth
        compile: whether training is compiled
        output: the JSON file

    Raises:
        InputError: for a GPU that is not there.
    """
    device = torch.device(device_type) if device_type else default_device()
    if device.type == "cuda" and not torch.cuda.is_available():
        raise InputError("--device is cuda, but torch finds no GPU here; use --device cpu")
    if turns is not None and turns < 1:
        raise InputError(f"--turns is {turns}, but must be at least 1")
    size = size or ("base" if device.type == "cuda" else "tiny")
    name = device_name() if device.type == default_device().type else device.type
    print(f"{size} on {name}, {_described(device)}", flush=True)
    measures: dict[str, Callable[[], Sequence[Speed]]] = {
        "train": lambda: [
            measure_training(size, device, turns or _TURNS[device.type][size], compile=compile)
        ],
        "memory": lambda: measure_growth(size, device, turns or _GROWTH_STEPS[device.type][size]),
        "decode": lambda: [measure_decoding(size, device, turns or _ROUNDS)],
        "data": lambda: [measure_data(device, turns or _ROUNDS)],
    }
    about = {"size": size, "device": name, "workload": asdict(workload(device))}
    made = {"commit": commit(), "versions": versions()}
    output.parent.mkdir(parents=True, exist_ok=True)
    print(_line("", "ours", "plain", "ratio (quartiles)"), flush=True)
    speeds: dict[str, object] = {}
    for key, measure in measures.items():
        if what is None or what == key:
            found = measure()
            listed = [asdict(speed) for speed in found]
            speeds[key] = listed if key == "memory" else listed[0]
            print("\n".join(_line(*row) for speed in found for row in speed.rows()), flush=True)
            now = datetime.now(UTC).isoformat(timespec="seconds")
            write_json(output, about | speeds | made | {"finished_at": now})
    print(output)


def _described(device: torch.device) -> str:
    load = workload(device)
    return (
        f"{load.vocab_size:,} word-pieces, lengths of {load.text}, "
        f"{load.tokens_per_batch:,} + {load.tokens_per_batch:,} tokens a batch"
    )


def _line(what: str, ours: str, plain: str = "", ratio: str = "") -> str:
    return f"{what:34} {ours:>12} {plain:>12}  {ratio}".rstrip()
