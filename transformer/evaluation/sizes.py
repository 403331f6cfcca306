"""How many numbers a model trains, counted without making it."""

from __future__ import annotations

from transformer.config import ModelConfig


def trained_numbers(config: ModelConfig) -> int:
    """The parameters of section 3's model, the shared embedding counted once.

    The same as :func:`transformer.model.encoder_decoder.count_parameters`, which makes the model
    and so needs torch.
    """
    width = config.d_model
    attention = 2 * width * config.num_heads * (config.d_k + config.d_v)
    feed_forward = 2 * width * config.d_ff + config.d_ff + width
    norm = 2 * width
    encoder_layer = attention + feed_forward + 2 * norm
    decoder_layer = 2 * attention + feed_forward + 3 * norm
    rows = config.vocab_size + (config.max_positions if config.positions == "learned" else 0)
    return rows * width + config.num_layers * (encoder_layer + decoder_layer)
