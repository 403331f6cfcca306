"""The rule that tunes each row's learning rate."""

from __future__ import annotations

from dataclasses import dataclass

from transformer.errors import InputError

_SEEDS = (2, 3, 4)


@dataclass(frozen=True, kw_only=True, slots=True)
class Tune:
    """The rule by which each row of a table, including the base, gets its learning rate.

    A row is trained with ``seed`` at each of the ``factors`` of its declared learning rate, with
    everything else unchanged. If the factor with the lowest perplexity is the first or the last,
    one more beyond it is tried. The best factor is trained again with ``seeds``, and only those
    runs are reported.

    Raises:
        InputError: if the factors do not rise, lack 1, or are fewer than two, or if the seed that
            chooses is also reported
    """

    factors: tuple[float, ...] = (0.25, 0.5, 1.0, 2.0, 4.0)
    seed: int = 1
    seeds: tuple[int, ...] = _SEEDS

    def __post_init__(self) -> None:
        rising = all(low < high for low, high in zip(self.factors, self.factors[1:], strict=False))
        if len(self.factors) < 2 or self.factors[0] <= 0 or not rising or 1.0 not in self.factors:
            raise InputError(
                f"the factors {self.factors} of a learning rate must rise, be above 0 and include 1"
            )
        self.check(self.seeds)

    def check(self, seeds: tuple[int, ...]) -> None:
        """Check that the seed that chooses the learning rates is not reported."""
        if self.seed in seeds:
            raise InputError(
                f"seed {self.seed} chooses the learning rates and cannot be reported: give others, "
                f"such as {','.join(map(str, _SEEDS))}"
            )

    @property
    def beyond(self) -> tuple[float, float]:
        """The factors beyond the first and the last, by the same ratio as their neighbours."""
        first, second, *_ = self.factors
        *_, before, last = self.factors
        return first * first / second, last * last / before
