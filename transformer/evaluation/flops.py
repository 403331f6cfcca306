"""The arithmetic of training, counted."""

from __future__ import annotations

from transformer.config import ModelConfig


def training_flops(config: ModelConfig, source_tokens: int, target_tokens: int) -> float:
    """Floating-point operations of forward and backward passes over so many real tokens.

    Each weight of a matrix product costs a multiplication and an addition forward and twice
    that backward, for each token it meets. Left out: softmax, normalisation and the products
    over positions, together about 1 % at the lengths of sentences.
    """
    heads = config.num_heads * (config.d_k + config.d_v)
    attention_half = config.d_model * heads  # W^Q and W^O, and as much again for W^K and W^V
    feed_forward = 2 * config.d_model * config.d_ff
    per_source = config.num_layers * (3 * attention_half + feed_forward)
    per_target = config.num_layers * (3 * attention_half + feed_forward)
    output = config.d_model * config.vocab_size
    return 6.0 * (per_source * source_tokens + (per_target + output) * target_tokens)


def nominal_flops(device_seconds: float, peak: float) -> float:
    """Training FLOPs as Table 2 has them (section 6.1): time by devices by what one does at best.

    Args:
        device_seconds: of training, added up over the devices
        peak: operations per second of one device
    """
    return device_seconds * peak
