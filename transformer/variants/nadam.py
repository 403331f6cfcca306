"""Methods that use Adam with Nesterov's momentum."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from torch.optim import NAdam, Optimizer

from transformer.config import Config
from transformer.errors import InputError
from transformer.training.module import TransformerModule
from transformer.training.optimizer import learning_rate
from transformer.variants.optimizer_parts import check_above_zero, decay_matrices


class NAdamW(TransformerModule):
    """Adam with Nesterov's momentum (Dozat 2016) and decoupled decay of all matrices.

    It is torch's NAdam, whose momentum grows over the first ten thousand steps, as Dozat's does.
    AlgoPerf's baseline keeps it constant.
    """

    def __init__(self, config: Config, *, weight_decay: float = 0.1) -> None:
        super().__init__(config)
        self.weight_decay = weight_decay

    def optimizer(self) -> Optimizer:
        """NAdam with decay; its learning rate is the configuration's schedule, factor included."""
        config, groups = self.config.training, decay_matrices(self.model, self.weight_decay)
        betas, eps = (config.adam_beta1, config.adam_beta2), config.adam_epsilon
        return NAdam(groups, lr=1.0, betas=betas, eps=eps, decoupled_weight_decay=True)


class CosineCycles(NAdamW):
    """NAdamW with a warm-up and a cosine to zero, ``cycles`` times over.

    Restarts are those of Loshchilov and Hutter 2017, each with the warm-up again, as in AlgoPerf's
    submission "cyclic_lr" (Ajroldi et al. 2024). The peak is the paper's, times
    ``learning_rate_factor``.
    """

    def __init__(self, config: Config, *, cycles: int = 2, **options: Any) -> None:
        super().__init__(config, **options)
        check_above_zero(cycles=cycles)
        training = config.training
        self.steps = math.ceil(training.max_steps / cycles)
        if self.steps <= training.warmup_steps:
            raise InputError(
                f"{cycles} cycles in {training.max_steps:,} steps leave none after a warm-up of "
                f"{training.warmup_steps:,}: set cycles or warmup_steps lower"
            )
        self.cycle = replace(training, max_steps=self.steps, schedule="cosine")

    def learning_rate(self, step: int) -> float:
        """The learning rate of a training that is one cycle long."""
        return learning_rate((step - 1) % self.steps + 1, self.config.model.d_model, self.cycle)
