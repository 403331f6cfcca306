"""Methods with other learning rates."""

from __future__ import annotations

from transformer.training.module import TransformerModule


class NoWarmup(TransformerModule):
    """The peak from the first step on, where the schedule would warm up; then the same decay.

    So runs with and without a warm-up differ in its steps alone. Xiong et al. (2020) compare both
    too, at the same peak.
    """

    def learning_rate(self, step: int) -> float:
        """That of the schedule, of no step before the warm-up's last one."""
        return super().learning_rate(max(step, self.config.training.warmup_steps))
