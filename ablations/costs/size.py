"""How large a model is: its parameters, and what they take on the disk."""

from __future__ import annotations

from transformer.config import Config, ModelConfig

# Weights in fp32, and Adam's two moments of each.
_WEIGHT_BYTES = 4
_CHECKPOINT_BYTES = 12
# Beside those that are averaged, resuming wants one to fall back on.
_FEWEST_CHECKPOINTS = 2


def parameters(model: ModelConfig) -> int:
    """All trained numbers, counted without torch; the shared matrix counts once (section 3.4)."""
    attention = model.num_heads * model.d_model * 2 * (model.d_k + model.d_v)
    feed_forward = 2 * model.d_model * model.d_ff + model.d_ff + model.d_model
    norm = 2 * model.d_model
    encoder_layer = attention + feed_forward + 2 * norm
    decoder_layer = 2 * attention + feed_forward + 3 * norm
    learned = model.max_positions * model.d_model if model.positions == "learned" else 0
    layers = model.num_layers * (encoder_layer + decoder_layer)
    return layers + model.vocab_size * model.d_model + learned


def run_bytes(config: Config) -> int:
    """What a run leaves on the disk: the checkpoints that are kept, and the best one's weights."""
    training = config.training
    kept = max(_FEWEST_CHECKPOINTS, training.average_checkpoints, training.also_average or 0)
    return parameters(config.model) * (_CHECKPOINT_BYTES * kept + _WEIGHT_BYTES)
