"""Speed and memory of rows of ``small``, and of attention by sentence."""

from __future__ import annotations

import importlib
import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from ablations.tables.scales import SMALL
from ablations.tables.table3 import TABLE
from bench.common import in_turn, workload
from bench.kernels import profile
from bench.workload import Workload, make_step_of, wait_for
from experiments.devices import peak_memory
from tests.gpu.test_equality import CPU, LOAD, Record
from transformer.config import PAD_ID, override
from transformer.kernels.captured_step import CapturedStep
from transformer.kernels.sentence_attention import sentence_attention
from transformer.training.module import TransformerModule
from transformer.training.packing import pack, room, unpack
from transformer.training.step_kinds import StepKind
from transformer.training.whole_step import WholeStep

_ROWS = [row for row in TABLE.rows if row.name in ("base", "A-h16", "C-N8", "big")]
# What a program of the kernel owns, what it takes at a time, warps, loads in flight; None: its own.
_TILES = (None, (64, 64, 4, 2), (32, 32, 4, 2), (128, 32, 8, 2), (128, 64, 8, 2), (64, 32, 4, 3))
_HEADS, _WIDTH = 8, 64  # of the paper's base
_LAYERS = 6


@pytest.mark.parametrize("row", _ROWS, ids=lambda row: row.name)
def test_a_row_of_small(row: Any, device: torch.device, record_property: Record) -> None:
    """A step without the Trainer's own time, and the hours of a seed.

    The lengths are those of captions in 8,000 word-pieces, somewhat fewer than the scale's 2,000
    make of them.
    """
    config = TABLE.configure(row, SMALL)
    load = Workload(text="multi30k", vocab_size=2_000, tokens_per_batch=1_000)
    batches = load.batches(12 if device.type == "cuda" else 2, device)
    ways: dict[str, tuple[StepKind, Any]] = {
        "plain_fp32": ("plain", "fp32"),
        "plain_bf16": ("plain", "bf16"),
        "captured_fp32": ("captured", "fp32"),
        "captured_bf16": ("captured", "bf16"),
    }
    steps = {
        name: make_step_of(override(config, precision=precision), way, device)
        for name, (way, precision) in ways.items()
    }
    in_turn(2 * batches, *steps.values(), device=device)
    times = in_turn(3 * batches, *steps.values(), device=device)
    seconds = dict(zip(steps, map(statistics.median, times), strict=True))
    record_property("ms_per_step", {name: 1e3 * each for name, each in seconds.items()})
    hours = {name: each * config.training.max_steps / 3600 for name, each in seconds.items()}
    record_property("hours", hours)
    for name in ("plain_fp32", "captured_fp32"):
        record_property(f"busy_{name}", profile(steps[name], batches, device)["busy"])


def test_capturing(device: torch.device, record_property: Record) -> None:
    """Time and memory of a graph, of which there is one for each shape of a batch."""
    config = override(TABLE.configure(TABLE.rows[0], SMALL), precision="fp32")
    load = Workload(text="multi30k", vocab_size=2_000, tokens_per_batch=1_000)
    batches = load.batches(40 if device.type == "cuda" else 2, device)
    module = TransformerModule(config).to(device).train()
    optimizer = module.configure_optimizers()["optimizer"]
    sums = WholeStep(module.model, config, packs=False).sums
    step = CapturedStep(sums, module.model, optimizer, config.training.clip_norm)
    shapes = {(batch.src.shape, batch.tgt.shape): batch for batch in batches}
    memory: list[int] = []

    def take(batch: Any) -> None:
        step((batch.src, batch.tgt), 1 / batch.target_tokens)

    times: list[list[float]] = []
    for _ in range(3):  # launched, captured, replayed
        times += in_turn(shapes.values(), take, device=device)
        memory.append(peak_memory(device))
    captured, replayed = (statistics.median(seconds) for seconds in times[1:])
    record_property("graphs", step.graphs)
    record_property("ms_to_capture", 1e3 * (captured - replayed))
    record_property("ms_to_replay", 1e3 * replayed)
    record_property("mib_per_graph", (memory[1] - memory[0]) / len(shapes) / 2**20)
    assert step.graphs == len(shapes)


@pytest.mark.parametrize("tile", _TILES, ids=lambda tile: "-".join(map(str, tile or ("own",))))
def test_attention_by_sentence(
    tile: tuple[int, ...] | None,
    device: torch.device,
    record_property: Record,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The base model's 18 attentions of a step in bf16: the device's time, forward and in all."""
    load = workload(device) if device.type == "cuda" else replace(LOAD, tokens_per_batch=100)
    (batch,) = load.batches(1, CPU)
    packed = pack(batch, room(load.tokens_per_batch), longest=256)
    assert packed is not None
    source, inputs, _ = unpack(packed.to(device).tensors, longest=256)
    shape = (1, _HEADS, source.ids.size(1), _WIDTH)
    masks = [source.mask(), inputs.mask(causal=True), inputs.mask_to(source.mask())]
    if tile is not None:
        if device.type == "cpu":
            pytest.skip("no tiles on a CPU")
        kernel = importlib.import_module("transformer.kernels.sentence_attention_triton")
        monkeypatch.setitem(kernel.TILES, (torch.bfloat16, _WIDTH), kernel.Tile(*tile))
    _record_attention("", sentence_attention, masks, shape, device, record_property)
    if tile is None:
        mask = torch.zeros(batch.src.shape, dtype=torch.bfloat16)
        mask = mask.masked_fill_(batch.src.eq(PAD_ID), -torch.inf)[:, None, None].to(device)
        shape = (len(batch.src), _HEADS, batch.src.size(1), _WIDTH)
        attend = scaled_dot_product_attention
        _record_attention("padded_", attend, [mask] * 3, shape, device, record_property)


def _record_attention(
    name: str,
    attend: Callable[..., Tensor],
    masks: list[Any],
    shape: tuple[int, ...],
    device: torch.device,
    record: Record,
) -> None:
    """The time of a step, whose layers have one attention for each of the masks."""
    query, key, value = (
        torch.randn(shape, device=device, dtype=torch.bfloat16, requires_grad=True)
        for _ in range(3)
    )

    def forward(mask: Any) -> Tensor:
        return attend(query, key, value, mask)

    def differentiate(mask: Any) -> None:
        out = forward(mask)
        torch.autograd.grad(out, (query, key, value), torch.ones_like(out))

    record(f"{name}forward_ms", _LAYERS * _device_ms(forward, masks, device))
    record(f"{name}ms", _LAYERS * _device_ms(differentiate, masks, device))


def _device_ms(call: Callable[[Any], object], items: Sequence[Any], device: torch.device) -> float:
    """Milliseconds for which the device works on calls with all items."""
    for item in items:  # compile
        call(item)
    wait_for(device)
    activity = torch.profiler.ProfilerActivity
    is_gpu, repeats = device.type == "cuda", 10 if device.type == "cuda" else 1
    kinds = [activity.CUDA if is_gpu else activity.CPU]
    with torch.profiler.profile(activities=kinds, acc_events=True) as found:
        for item in [*items] * repeats:
            call(item)
        wait_for(device)
    spent = sum(
        event.self_device_time_total if is_gpu else event.self_cpu_time_total
        for event in found.key_averages()
        if (event.device_type.name == "CUDA") == is_gpu
    )
    return spent / 1e3 / repeats
