"""What a run leaves on the disk."""

from __future__ import annotations

from transformer.config import Config
from transformer.evaluation.counts import count_parameters

# Weights in fp32, and Adam's two moments of each.
_WEIGHT_BYTES = 4
_CHECKPOINT_BYTES = 12
# Beside those that are averaged, resuming wants one to fall back on.
_FEWEST_CHECKPOINTS = 2


def run_bytes(config: Config) -> int:
    """The bytes of the checkpoints that are kept, and of the best one's weights."""
    training = config.training
    kept = max(_FEWEST_CHECKPOINTS, training.average_checkpoints, training.also_average or 0)
    return count_parameters(config.model) * (_CHECKPOINT_BYTES * kept + _WEIGHT_BYTES)
