"""A method that scores an average of its latest weights."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from transformer.config import Config
from transformer.training.module import TransformerModule
from transformer.variants.optimizer_parts import check_above_zero


class LatestWeights(TransformerModule):
    """LAWA (Kaddour 2022): the mean of the last ``k`` copies of the weights is scored.

    ``every`` is the share of all steps between two copies. Both defaults are those of AlgoPerf's
    submission "lawa_queue" (Ajroldi et al. 2024). Until there are ``k``, the mean is of fewer.
    Training itself is the paper's, with the learning rate of the configuration.
    """

    taken: Tensor

    def __init__(self, config: Config, *, k: int = 10, every: float = 0.002) -> None:
        super().__init__(config)
        check_above_zero(k=k, every=every)
        self.steps = math.ceil(every * config.training.max_steps)
        self.ring = nn.ModuleList(copy.deepcopy(self.model) for _ in range(k)).requires_grad_(False)
        self.register_buffer("taken", torch.tensor(0))

    def optimizer_step(self, *args: Any, **kwargs: Any) -> None:
        """Replace the oldest copy if its turn has come; the Trainer counts the step afterwards."""
        super().optimizer_step(*args, **kwargs)
        if (self.trainer.global_step + 1) % self.steps == 0:
            oldest = self.ring[int(self.taken) % len(self.ring)]
            oldest.load_state_dict(self.model.state_dict())
            self.taken += 1

    def scored_weights(self) -> Mapping[str, Tensor] | None:
        """The mean of the copies; None before the first."""
        copies = [model.state_dict() for model in self.ring[: int(self.taken)]]
        if not copies:
            return None
        weights: dict[str, Tensor] = {}
        for name, value in self.model.state_dict().items():  # a count has no mean
            of_copies = torch.stack([each[name] for each in copies])
            weights[name] = of_copies.mean(0) if value.is_floating_point() else value
        return weights
