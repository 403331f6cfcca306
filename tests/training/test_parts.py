"""The learning rate, bf16 only where it is faster, and averaged checkpoints."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Literal

import pytest
import torch

from transformer.config import Config, DataConfig, TrainingConfig, override
from transformer.data.corpora.declared import CLDR_EN_DE
from transformer.training.checkpoints import average_weights
from transformer.training.optimizer import learning_rate
from transformer.training.precision import effective_precision

CPU = torch.device("cpu")
INTEL, AMD = {"cpu_name": "Intel Xeon"}, {"cpu_name": "AMD EPYC"}


@pytest.mark.parametrize(("d_model", "peak"), [(512, 6.99e-4), (1024, 4.94e-4)])
def test_the_peak_is_the_papers(d_model: int, peak: float) -> None:
    config = TrainingConfig()
    before, top, after = (learning_rate(step, d_model, config) for step in (3_999, 4_000, 4_001))
    assert top > max(before, after)
    assert math.isclose(top, peak, rel_tol=1e-3)


@pytest.mark.parametrize("factor", [1.0, 0.3])
def test_the_schedule_is_equation_3_times_the_factor(factor: float) -> None:
    config = TrainingConfig(warmup_steps=101, learning_rate_factor=factor)
    for step in (1, 7, 99, 100, 101, 10_007):
        equation = factor * 26**-0.5 * min(step**-0.5, step * 101**-1.5)
        assert math.isclose(learning_rate(step, 26, config), equation)


@pytest.mark.parametrize(
    ("schedule", "middle", "last"),
    [("linear", 1 / 2, 1 / 20), ("cosine", 1 / 2, (1 - math.cos(math.pi / 20)) / 2)],
)
def test_other_schedules_have_the_same_warm_up_and_end_at_max_steps(
    schedule: Literal["linear", "cosine"], middle: float, last: float
) -> None:
    """From the peak at step 10 down to 0 at step 30."""
    config = TrainingConfig(warmup_steps=10, max_steps=29, schedule=schedule)
    equation = TrainingConfig(warmup_steps=10, max_steps=29)
    rates = [learning_rate(step, 64, config) for step in range(1, 32)]
    assert rates[:10] == [learning_rate(step, 64, equation) for step in range(1, 11)]
    assert [rates[19], rates[28]] == pytest.approx([rates[9] * middle, rates[9] * last])
    assert rates[29] == rates[30] == 0.0


@pytest.mark.parametrize(
    ("found", "d_model", "expected"),
    [
        (AMD, 512, "fp32"),
        (AMD | {"avx512_bf16": True}, 512, "bf16"),
        (INTEL | {"avx512_bf16": True}, 512, "fp32"),
        (INTEL | {"avx512_bf16": True, "amx_bf16": True}, 128, "bf16"),
        (INTEL | {"avx512_bf16": True, "amx_bf16": True}, 64, "fp32"),
        (AMD | {"avx512_bf16": True}, 256, "bf16"),
    ],
)
def test_auto_is_the_faster_precision_and_an_explicit_one_is_kept(
    found: dict[str, object], d_model: int, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: found)
    config = override(Config(data=DataConfig(corpus=CLDR_EN_DE)), d_model=d_model)
    assert effective_precision(config, CPU) == expected
    assert effective_precision(override(config, precision="fp32"), CPU) == "fp32"
    assert effective_precision(override(config, precision="bf16"), CPU) == "bf16"

    def supported(including_emulation: bool = True) -> bool:
        return including_emulation or expected == "bf16"

    monkeypatch.setattr(torch.cuda, "is_bf16_supported", supported)
    cuda = torch.device("cuda")
    on_gpu = expected if d_model >= 256 else "fp32"
    assert effective_precision(config, cuda) == on_gpu
    assert effective_precision(override(config, precision="bf16"), cuda) == "bf16"


def test_each_weight_is_the_mean_of_its_checkpoints_summed_in_float64(tmp_path: Path) -> None:
    for i, x in enumerate([1e8, 3.0, -1e8]):
        weights = {"model.a": torch.full((2, 3), i + 1.0), "model.b": torch.tensor([x])}
        torch.save({"state_dict": weights, "global_step": 7}, tmp_path / f"{i}.ckpt")
    average = average_weights(sorted(tmp_path.glob("*.ckpt")))
    assert average["a"].tolist() == [[2.0] * 3] * 2 and average["b"].item() == 1.0
    assert average["a"].dtype == torch.float32
