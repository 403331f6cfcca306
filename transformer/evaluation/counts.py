"""Parameters and FLOPs of a configuration.

Those of the paper's model come from a formula, which needs no torch; those of a variant are counted
on the model itself, without allocating its memory if possible.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

from transformer.config import Config, ModelConfig

if TYPE_CHECKING:
    from transformer.model.encoder_decoder import Transformer


def count_parameters(config: ModelConfig, vocab_size: int | None = None) -> int:
    """The number of trained parameters, the shared embedding counted once.

    Args:
        vocab_size: replaces the configuration's
    """
    if vocab_size is not None:
        config = dataclasses.replace(config, vocab_size=vocab_size)
    if config.model is not None:
        return _counted(config, _parameters)[0]
    width = config.d_model
    attention = 2 * width * config.num_heads * (config.d_k + config.d_v)
    feed_forward = 2 * width * config.d_ff + config.d_ff + width
    norm = 2 * width
    encoder_layer = attention + feed_forward + 2 * norm
    decoder_layer = 2 * attention + feed_forward + 3 * norm
    rows = config.vocab_size
    if config.positions == "learned":
        rows += config.max_positions
    return rows * width + config.num_layers * (encoder_layer + decoder_layer)


def training_flops(config: ModelConfig, source_tokens: int, target_tokens: int) -> float:
    """Floating-point operations of the forward and backward passes over this many real tokens.

    Six for each token and each weight of a matrix product. Softmax, normalisation and the products
    over positions are left out: together about 1 % at the lengths of sentences.
    """
    if config.model is not None:
        per_source, per_target = _counted(config, _products)
        return 6.0 * (per_source * source_tokens + per_target * target_tokens)
    heads = config.num_heads * (config.d_k + config.d_v)
    attention_half = config.d_model * heads  # W^Q and W^O; W^K and W^V are as large again
    feed_forward = 2 * config.d_model * config.d_ff
    layers = config.num_layers * (3 * attention_half + feed_forward)
    output = config.d_model * config.vocab_size
    return 6.0 * (layers * source_tokens + (layers + output) * target_tokens)


@functools.cache
def _counted(
    config: ModelConfig, count: Callable[[Transformer], tuple[int, ...]]
) -> tuple[int, ...]:
    """Apply ``count`` to a variant, which is built on the meta device if it can be."""
    import torch

    from transformer.variant import build

    try:
        with torch.device("meta"):
            return count(build(config).eval())
    except Exception:  # one that reads a tensor's values, as by item()
        return count(build(config).eval())


def _parameters(model: Transformer) -> tuple[int]:
    saved = model.state_dict()  # without the rows that pad the embedding
    trained = (name for name, weight in model.named_parameters() if weight.requires_grad)
    return (sum(saved[name].numel() for name in trained),)


def _products(model: Transformer) -> tuple[int, int]:
    """Multiplications by weights for each source and each target token."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    device = next(model.parameters()).device

    def products(source: int, target: int) -> int:
        src, tgt = (torch.ones(1, n, dtype=torch.long, device=device) for n in (source, target))
        with FlopCounterMode(display=False) as counter:
            model.states(src, tgt)
        found = counter.get_flop_counts()["Global"]
        # Products of two activations, as in attention, are other operations.
        return (found.get(torch.ops.aten.mm, 0) + found.get(torch.ops.aten.addmm, 0)) // 2

    few, output = products(2, 2), model.output.vocab_size * model.output.d_model
    return products(3, 2) - few, products(2, 3) - few + output


def step_flops(config: Config) -> float:
    """FLOPs of a step on a full batch, of the paper's model with these sizes; for estimates."""
    paper = dataclasses.replace(config.model, model=None)
    return training_flops(paper, config.data.tokens_per_batch, config.data.tokens_per_batch)


def run_flops(config: Config) -> float:
    """FLOPs of a whole training."""
    return step_flops(config) * config.training.max_steps
