"""Methods with other learning rates."""

from __future__ import annotations

from transformer.training.module import TransformerModule


class NoWarmup(TransformerModule):
    """Holds the peak in the steps in which the schedule would warm up; then decays as it does.

    So runs with and without a warm-up differ only in these steps. Xiong et al. (2020) compare both
    too, at the same peak.
    """

    def learning_rate(self, step: int) -> float:
        """The schedule's learning rate, with that of the last warm-up step for all earlier ones."""
        return super().learning_rate(max(step, self.config.training.warmup_steps))
