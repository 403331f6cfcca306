"""The benchmark's table and its JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import torch

from experiments.benchmark.data import DataSpeed, measure_data
from experiments.benchmark.decoding import DecodingSpeed, measure_decoding
from experiments.benchmark.growth import MemoryGrowth, measure_growth
from experiments.benchmark.training import TrainingSpeed, measure_training
from experiments.benchmark.workload import Size, workload
from experiments.run.devices import default_device, device_name
from experiments.run.files import write_json
from experiments.run.provenance import commit, versions
from transformer.errors import InputError

What = Literal["train", "memory", "decode", "data"]
Speed = TrainingSpeed | MemoryGrowth | DecodingSpeed | DataSpeed
Row = tuple[str, str, str, str]

# Updates, and rounds of the others, by size and kind of device: some minutes for each.
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
        size: ``tiny`` on a CPU and ``base`` on a GPU if None
        device_type: a GPU if there is one and None is given
        what: all of it if None
        turns: how often each is timed; some minutes' worth if None
        compile: whether training is compiled

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
    print(_line(("", "ours", "plain", "ratio (quartiles)")), flush=True)
    speeds: dict[str, object] = {}
    for key, measure in measures.items():
        if what is None or what == key:
            found = measure()
            listed = [asdict(speed) for speed in found]
            speeds[key] = listed if key == "memory" else listed[0]
            print("\n".join(_line(row) for speed in found for row in rows(speed)), flush=True)
            now = datetime.now(UTC).isoformat(timespec="seconds")
            write_json(output, about | speeds | made | {"finished_at": now})
    print(output)


def rows(speed: Speed) -> list[Row]:
    """The rows of the table that tell a measurement: what, ours, the plain way's, their ratio."""
    if isinstance(speed, TrainingSpeed):
        return _training_rows(speed)
    if isinstance(speed, MemoryGrowth):
        return _memory_rows(speed)
    if isinstance(speed, DecodingSpeed):
        return [
            (
                f"decode, beam {speed.beam_size}: sentences/s",
                f"{speed.sentences_per_second:,.1f}",
                f"{speed.plain_sentences_per_second:,.1f}",
                str(speed.ratio),
            ),
        ]
    return [
        (
            "data: pairs/s",
            f"{speed.pairs_per_second:,.0f}",
            f"{speed.plain_pairs_per_second:,.0f}",
            str(speed.ratio),
        ),
        ("  fill of the batches", f"{speed.fill:.1%}", f"{speed.plain_fill:.1%}", ""),
        ("  ms a batch", f"{1e3 * speed.seconds_per_batch:.2f}", "", ""),
    ]


def _training_rows(speed: TrainingSpeed) -> list[Row]:
    memory = speed.peak_memory_bytes
    peaks = [
        (f"  MFU of {peak:.2f} TFLOP/s {name}", f"{speed.mfu[name].median:.1%}", "", "")
        for name, peak in speed.peak_tflops.items()
        if name != "bf16" or speed.native_bf16
    ]
    overhead = speed.trainer_overhead_seconds
    return [
        (
            f"train, {speed.precision}: target tokens/s",
            f"{speed.target_tokens_per_second:,.0f}",
            f"{speed.plain_target_tokens_per_second:,.0f}",
            str(speed.ratio),
        ),
        ("  source tokens/s", f"{speed.source_tokens_per_second:,.0f}", "", ""),
        ("  TFLOP/s", f"{speed.tflops:.3f}", "", ""),
        *peaks,
        ("  fill of the batches", f"{speed.fill:.1%}", "", ""),
        ("  peak memory, MiB", f"{memory / 2**20:,.0f}" if memory else "", "", ""),
        ("  ms a step", f"{1e3 * speed.seconds_per_step:.1f}", "", ""),
        ("  ms a step by the Trainer", f"{1e3 * overhead:.2f}", "", ""),
    ]


def _memory_rows(memory: MemoryGrowth) -> list[Row]:
    known = memory.peak_bytes > 0
    return [
        (
            f"memory, {memory.precision}: peak, MiB",
            f"{memory.peak_bytes / 2**20:,.0f}" if known else "",
            "",
            "",
        ),
        (
            f"  growth, step {memory.settled:,} to {memory.steps:,}",
            f"{memory.growth:.1%}" if known else "",
            "",
            "",
        ),
        ("  steps with a new shape", f"{memory.new_shape_steps:.1%}", "", ""),
    ]


def _described(device: torch.device) -> str:
    load = workload(device)
    return (
        f"{load.vocab_size:,} word-pieces, lengths of {load.text}, "
        f"{load.tokens_per_batch:,} + {load.tokens_per_batch:,} tokens a batch"
    )


def _line(row: Row) -> str:
    return f"{row[0]:34} {row[1]:>12} {row[2]:>12}  {row[3]}".rstrip()
