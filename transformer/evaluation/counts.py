"""Parameters and FLOPs of a configuration, computed without building the model."""

from __future__ import annotations

from transformer.config import Config, ModelConfig


def count_parameters(config: ModelConfig, vocab_size: int | None = None) -> int:
    """The number of trained parameters, the shared embedding counted once.

    Args:
        vocab_size: in place of the configuration's
    """
    width = config.d_model
    attention = 2 * width * config.num_heads * (config.d_k + config.d_v)
    feed_forward = 2 * width * config.d_ff + config.d_ff + width
    norm = 2 * width
    encoder_layer = attention + feed_forward + 2 * norm
    decoder_layer = 2 * attention + feed_forward + 3 * norm
    rows = config.vocab_size if vocab_size is None else vocab_size
    rows += config.max_positions if config.positions == "learned" else 0
    return rows * width + config.num_layers * (encoder_layer + decoder_layer)


def training_flops(config: ModelConfig, source_tokens: int, target_tokens: int) -> float:
    """Floating-point operations of the forward and backward passes over this many real tokens.

    Each weight of a matrix product costs a multiplication and an addition per token in the forward
    pass and twice that in the backward pass. Softmax, normalisation and the products over
    positions are left out: together about 1 % at the lengths of sentences.
    """
    heads = config.num_heads * (config.d_k + config.d_v)
    attention_half = config.d_model * heads  # W^Q and W^O; W^K and W^V are as large again
    feed_forward = 2 * config.d_model * config.d_ff
    per_source = config.num_layers * (3 * attention_half + feed_forward)
    per_target = config.num_layers * (3 * attention_half + feed_forward)
    output = config.d_model * config.vocab_size
    return 6.0 * (per_source * source_tokens + (per_target + output) * target_tokens)


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
