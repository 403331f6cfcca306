"""Time training steps in turn with nn.Transformer."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from bench.common import Numbers, Size, config_of, in_turn, ratio_of, run, workload
from bench.plain import make_plain_step
from bench.workload import Step, make_step_of
from experiments.devices import peak_memory
from transformer.config import override
from transformer.evaluation.counts import training_flops
from transformer.training.precision import effective_precision
from transformer.training.step_kinds import wanted_kind

_WARM_UP_STEPS = 2
# The side of square matrices, large enough to reach the peak in some hundredths of a second.
_SIDE = {"cpu": 1_024, "cuda": 8_192}
# Products that are timed together: on a GPU, the time of a single one is mostly waiting.
_PRODUCTS = {"cpu": 1, "cuda": 20}
_RIVALS = {False: "nn.Transformer", True: "nn.Transformer, compiled"}  # whether compiled


def measure_training(
    size: Size, device: torch.device, turns: int, *, compile: bool = False
) -> Numbers:
    """Time training steps on this device, and those of ``nn.Transformer``."""
    race = Race(size, device, turns)
    config = override(config_of(size, workload(device)), compile=True if compile else None)
    kind = wanted_kind(config, device, is_whole=True)
    race.enter(kind, partial(make_step_of, config, kind, device))
    race.enter_rival(compile)
    return race.run()


class Race:
    """Ways to take a training step, each in turn with the others on the same batches.

    On a GPU each shape of a batch is warmed up before it is timed, as its kernels are planned,
    compiled or captured at the first steps. FLOPs and tokens are those of real tokens, without
    padding.

    Attributes:
        steps: the steps that could be entered, by name
        failed: why the others could not
    """

    def __init__(self, size: Size, device: torch.device, turns: int) -> None:
        self.config, self._device = config_of(size, workload(device)), device
        batches = workload(device).batches(_WARM_UP_STEPS + turns, device)
        self._warm_up = batches if device.type == "cuda" else batches[:_WARM_UP_STEPS]
        self.batches = batches[_WARM_UP_STEPS:]
        self.steps: dict[str, Step] = {}
        self.failed: dict[str, str] = {}
        self._memory: dict[str, float] = {}
        self._seconds: dict[str, float] = {}

    def enter(self, name: str, make: Callable[[], Step]) -> None:
        """Make a step and warm it up; on a GPU twice, as a shape is captured the second time."""
        device, is_gpu = self._device, self._device.type == "cuda"
        if is_gpu:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_reserved(device) if is_gpu else 0
        try:
            step = make()
            seconds = in_turn(self._warm_up * (2 if is_gpu else 1), step, device=device)[0]
        except Exception as error:  # such as a compiler's, of any type
            self.failed[name] = f"{type(error).__name__}: {error}".partition("\n")[0]
            return
        self.steps[name], self._seconds[name] = step, sum(seconds)
        self._memory[name] = (peak_memory(device) - before) / 2**20

    def enter_rival(self, compile: bool) -> None:
        """Enter ``nn.Transformer`` in the same precision."""
        self.enter(_RIVALS[compile], partial(make_plain_step, self.config, self._device, compile))

    def run(self) -> Numbers:
        """Time all steps, and large matrix products after each batch."""
        device, batches = self._device, self.batches
        precision = effective_precision(self.config, device)
        multiply = matrix_product(device, precision == "bf16")
        in_turn(batches[:1], multiply, device=device)
        *times, product_times = in_turn(batches, *self.steps.values(), multiply, device=device)
        by_name = dict(zip(self.steps, times, strict=True))
        peaks = [product_flops(device) / seconds for seconds in product_times]
        model = self.config.model
        flops = [training_flops(model, x.source_tokens, x.target_tokens) for x in batches]
        source = sum(batch.source_tokens for batch in batches)
        target = sum(batch.target_tokens for batch in batches)
        positions = sum(batch.src.numel() + batch.tgt[:, 1:].numel() for batch in batches)

        def of_each(number: Callable[[list[float]], Any]) -> dict[str, Any]:
            return {name: number(seconds) for name, seconds in by_name.items()}

        def share(seconds: list[float]) -> Any:
            return ratio_of([n / s for n, s in zip(flops, seconds, strict=True)], peaks)

        numbers: Numbers = {"precision": precision, "steps": len(batches)}
        if self.failed:
            numbers["failed"] = self.failed
        numbers |= {
            "ms_per_step": of_each(lambda seconds: 1e3 * statistics.median(seconds)),
            "target_tokens_per_second": of_each(lambda seconds: target / sum(seconds)),
            "tflops": of_each(lambda seconds: sum(flops) / sum(seconds) / 1e12),
            "share_of_a_large_product": of_each(share),
        }
        for rival in by_name.keys() & {*_RIVALS.values()}:
            ratios = of_each(lambda seconds, of=by_name[rival]: ratio_of(of, seconds))
            numbers[f"times_as_fast_as_{rival}"] = ratios
        return numbers | {
            "product_tflops": statistics.median(peaks) / 1e12,
            "fill_of_the_batches": (source + target) / positions,
            "peak_memory_mib": self._memory,
            "warm_up_seconds": self._seconds,
        }


def matrix_product(device: torch.device, bf16: bool) -> Callable[[object], object]:
    """A function that multiplies large matrices, the fastest work of a device."""
    dtype = torch.bfloat16 if bf16 else torch.float32
    left, right = torch.randn(2, _SIDE[device.type], _SIDE[device.type], device=device).to(dtype)
    out = torch.empty_like(left)

    def multiply(_: object) -> None:
        for _ in range(_PRODUCTS[device.type]):
            torch.mm(left, right, out=out)

    return multiply


def product_flops(device: torch.device) -> float:
    """The operations of those products."""
    return 2.0 * _SIDE[device.type] ** 3 * _PRODUCTS[device.type]


if __name__ == "__main__":
    run(measure_training, turns=40, compile="compile both, with torch.compile")
