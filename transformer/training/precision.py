"""Choose bf16 where the hardware multiplies it."""

from __future__ import annotations

import torch

from transformer.config import Precision


def multiplies_bf16(device: torch.device) -> bool:
    """Whether the device has bf16 matrix instructions; emulation is slower than fp32."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    if device.type == "cpu":
        capability = torch.cpu.get_capabilities()
        return bool(capability.get("avx512_bf16") or capability.get("amx_bf16"))
    return False


def effective_precision(precision: Precision, device: torch.device) -> Precision:
    """Resolve ``auto`` for this device."""
    if precision == "auto":
        return "bf16" if multiplies_bf16(device) else "fp32"
    return precision


def autocast(precision: Precision, device: torch.device) -> torch.autocast:
    """A context in which products run in the chosen precision; weights stay in fp32."""
    enabled = effective_precision(precision, device) == "bf16"
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=enabled)
