"""Parameters and FLOPs of a configuration, counted on a model without memory."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING

from transformer.config import Config, ModelConfig
from transformer.errors import InputError

if TYPE_CHECKING:
    from transformer.model.encoder_decoder import Transformer


def count_parameters(config: ModelConfig, vocab_size: int | None = None) -> int:
    """The number of trained parameters, the shared embedding counted once.

    Args:
        vocab_size: in place of the configuration's
    """
    if vocab_size is not None:
        config = dataclasses.replace(config, vocab_size=vocab_size)
    return _parameters(config)


def training_flops(config: ModelConfig, source_tokens: int, target_tokens: int) -> float:
    """Floating-point operations of the forward and backward passes over this many real tokens.

    Each weight of a matrix product costs a multiplication and an addition per token in the forward
    pass and twice that in the backward pass. Softmax, normalisation and the products over
    positions are left out: together about 1 % at the lengths of sentences.
    """
    per_source, per_target = _products(config)
    return 6.0 * (per_source * source_tokens + per_target * target_tokens)


@functools.cache
def _parameters(config: ModelConfig) -> int:
    model = _model(config)
    saved = model.state_dict()  # without the rows that pad the embedding
    return sum(saved[name].numel() for name, _ in model.named_parameters())


@functools.cache
def _products(config: ModelConfig) -> tuple[int, int]:
    """Multiplications of weights for each source and each target token."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    model, aten = _model(config), torch.ops.aten

    def products(source: int, target: int) -> int:
        src, tgt = (torch.ones(1, n, dtype=torch.long, device="meta") for n in (source, target))
        with FlopCounterMode(display=False) as counter:
            model.states(src, tgt)
        found = counter.get_flop_counts()["Global"]
        return (found.get(aten.mm, 0) + found.get(aten.addmm, 0)) // 2

    few, output = products(2, 2), model.output.vocab_size * model.output.d_model
    return products(3, 2) - few, products(2, 3) - few + output


def _model(config: ModelConfig) -> Transformer:
    """The model on the meta device; the paper's where the variant is not known, for estimates."""
    import torch

    from transformer.variant import build

    with torch.device("meta"):
        try:
            return build(config).eval()
        except InputError:
            return build(dataclasses.replace(config, model=None)).eval()


def step_flops(config: Config) -> float:
    """FLOPs of one step on a full batch."""
    return training_flops(config.model, config.data.tokens_per_batch, config.data.tokens_per_batch)


def run_flops(config: Config) -> float:
    """FLOPs of a whole training."""
    return step_flops(config) * config.training.max_steps


def nominal_flops(device_seconds: float, peak: float) -> float:
    """Training FLOPs as Table 2 estimates them (section 6.1): device time times peak speed.

    Args:
        device_seconds: training time summed over the devices
        peak: operations per second that one device sustains
    """
    return device_seconds * peak
