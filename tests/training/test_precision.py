"""bf16 only where the hardware multiplies it, unless requested."""

from __future__ import annotations

import pytest
import torch

from transformer.training.precision import effective_precision, multiplies_bf16

CPU = torch.device("cpu")


def cpu_with(monkeypatch: pytest.MonkeyPatch, **capabilities: bool) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx2": True} | capabilities)


@pytest.mark.parametrize(
    ("capabilities", "expected"),
    [
        ({}, "fp32"),
        ({"avx512_bf16": False, "amx_bf16": False}, "fp32"),
        ({"avx512_bf16": True, "amx_bf16": False}, "bf16"),
        ({"amx_bf16": True}, "bf16"),
    ],
)
def test_auto_on_cpu(
    capabilities: dict[str, bool], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cpu_with(monkeypatch, **capabilities)
    assert effective_precision("auto", CPU) == expected


@pytest.mark.parametrize("native", [True, False])
def test_auto_on_gpu_ignores_emulation(native: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def supported(including_emulation: bool = True) -> bool:
        return including_emulation or native

    monkeypatch.setattr(torch.cuda, "is_bf16_supported", supported)
    assert multiplies_bf16(torch.device("cuda")) == native


def test_an_explicit_precision_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu_with(monkeypatch, avx512_bf16=True)
    assert effective_precision("fp32", CPU) == "fp32"
    cpu_with(monkeypatch)
    assert effective_precision("bf16", CPU) == "bf16"
