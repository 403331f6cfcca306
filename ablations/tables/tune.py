"""Tune the learning rate of each row by one rule."""

from __future__ import annotations

from dataclasses import dataclass

from transformer.errors import InputError

_SEEDS = (2, 3, 4)


@dataclass(frozen=True, kw_only=True, slots=True)
class Tune:
    """The rule by which each row of a table, the base too, gets its learning rate.

    A row is trained with ``seed`` at each of the ``factors`` of the learning rate that it has, with
    all else as it is. The factor with the lowest perplexity is trained again with ``seeds``, which
    alone are reported. If that factor is the first or the last, one more beyond it is tried.

    Raises:
        InputError: if the factors do not rise, lack 1, or are fewer than two, or if the seed that
            chooses is reported too
    """

    factors: tuple[float, ...] = (0.25, 0.5, 1.0, 2.0, 4.0)
    seed: int = 1
    seeds: tuple[int, ...] = _SEEDS

    def __post_init__(self) -> None:
        rising = all(low < high for low, high in zip(self.factors, self.factors[1:], strict=False))
        if len(self.factors) < 2 or self.factors[0] <= 0 or not rising or 1.0 not in self.factors:
            raise InputError(
                f"the factors {self.factors} of a learning rate must rise from above 0, with 1"
            )
        self.check(self.seeds)

    def check(self, seeds: tuple[int, ...]) -> None:
        """Check that no seed that is reported has chosen a learning rate."""
        if self.seed in seeds:
            raise InputError(
                f"seed {self.seed} chooses the learning rates, and is not reported: give others, "
                f"such as {','.join(map(str, _SEEDS))}"
            )

    @property
    def beyond(self) -> tuple[float, float]:
        """The factor below the first one and that above the last, as far as its neighbour is."""
        first, second, *_ = self.factors
        *_, before, last = self.factors
        return first * first / second, last * last / before
