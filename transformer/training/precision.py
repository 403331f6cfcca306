"""Choose bf16 where it is faster."""

from __future__ import annotations

import torch

from transformer.config import Config, Precision

# The d_model below which converting costs a Xeon or a GPU more than matrix products gain.
_NARROW = {"cpu": 128, "cuda": 256}


def is_faster_in_bf16(d_model: int, device: torch.device) -> bool:
    """Whether a model of this width trains faster in bf16 than in fp32; emulation never does."""
    if device.type not in _NARROW or d_model < _NARROW[device.type]:
        return False
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    capability = torch.cpu.get_capabilities()
    # Of Intel's bf16 instructions only AMX is faster than fp32.
    avx512 = capability.get("avx512_bf16") and "Intel" not in str(capability.get("cpu_name"))
    return bool(avx512 or capability.get("amx_bf16"))


def effective_precision(config: Config, device: torch.device) -> Precision:
    """The precision of training on this device; ``auto`` is the faster one."""
    if config.training.precision != "auto":
        return config.training.precision
    return "bf16" if is_faster_in_bf16(config.model.d_model, device) else "fp32"


def autocast(config: Config, device: torch.device) -> torch.autocast:
    """A context in which matrix products run in the chosen precision; weights stay in fp32."""
    enabled = effective_precision(config, device) == "bf16"
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=enabled)
