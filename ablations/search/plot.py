"""Where the dots and bars of a search's figures lie; the template draws them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ablations import formats
from ablations.report.plot import ticks
from ablations.search.trials import Trial
from experiments.run.progress import RunState

_LEFT, _RIGHT, _TOP, _BOTTOM = 36.0, 420.0, 12.0, 180.0
_WORST = 1_000.0  # times the best
_LETTER, _BAR, _LINE = 6.5, 180.0, 20.0


@dataclass(frozen=True, slots=True)
class Dot:
    """A trial's value."""

    x: float
    y: float
    pruned: bool
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class History:
    """Perplexity by trial; ``best`` are the corners of the line of the best so far.

    The axis is logarithmic: pruned trials and finished ones may lie far apart.
    """

    left: float
    right: float
    top: float
    bottom: float
    x_ticks: tuple[tuple[float, str], ...]
    y_ticks: tuple[tuple[float, str], ...]
    dots: tuple[Dot, ...]
    best: tuple[tuple[float, float], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Bars:
    """A bar for each name, from ``left`` on: height of its middle, name, length and label."""

    left: float
    width: float
    height: float
    bars: tuple[tuple[float, str, float, str], ...]


def history(trials: Sequence[Trial]) -> History | None:
    """The figure of all values; None before there are two.

    One that is about to diverge may be of any size: it lies at the top.
    """
    shown = [(i, t, t.perplexity) for i, t in enumerate(trials) if t.perplexity is not None]
    if len(shown) < 2:
        return None
    top = _WORST * min(value for _, _, value in shown)
    known = [(i, trial, min(value, top)) for i, trial, value in shown]
    values = [value for _, _, value in known]
    margin = (max(values) / min(values)) ** 0.06 * 1.001
    low, high = min(values) / margin, max(values) * margin
    last = max(1, len(trials) - 1)

    def across(index: float) -> float:
        return round(_LEFT + 8 + (_RIGHT - _LEFT - 16) * index / last, 1)

    def down(value: float) -> float:
        share = math.log(value / low) / math.log(high / low)
        return round(_BOTTOM - (_BOTTOM - _TOP) * share, 1)

    return History(
        left=_LEFT,
        right=_RIGHT,
        top=_TOP,
        bottom=_BOTTOM,
        x_ticks=tuple(
            (across(tick), f"{tick:g}") for tick in ticks(0, last + 0.01) if tick == int(tick)
        ),
        y_ticks=tuple((down(tick), f"{tick:g}") for tick in _log_ticks(low, high)),
        dots=tuple(
            Dot(across(i), down(value), trial.state == RunState.PRUNED, _label(trial))
            for i, trial, value in known
        ),
        best=tuple((across(i), down(value)) for i, value in _best_so_far(trials)),
    )


def _log_ticks(low: float, high: float) -> list[float]:
    """Round values between ``low`` and ``high``: 1, 2, 5, 10 and so on, or closer ones."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)))
    found = [part * 10.0**power for power in powers for part in (1, 2, 5)]
    found = [value for value in found if low <= value <= high]
    return found if len(found) > 1 else ticks(low, high)


def _best_so_far(trials: Sequence[Trial]) -> list[tuple[float, float]]:
    """The corners of a line that falls where a trial finished better than all before it."""
    corners: list[tuple[float, float]] = []
    lowest = math.inf
    for index, trial in enumerate(trials):
        if trial.state == RunState.DONE and trial.perplexity is not None:
            if corners and trial.perplexity < lowest:
                corners.append((index, lowest))
            if trial.perplexity < lowest:
                lowest = trial.perplexity
                corners.append((index, lowest))
    return [*corners, (len(trials) - 1, lowest)] if corners else []


def _label(trial: Trial) -> str:
    value = formats.number(trial.perplexity, 3)
    return f"{trial.name}: {value}" + (
        f", pruned at step {trial.step:,}" if trial.state == RunState.PRUNED else ""
    )


def bars(shares: Mapping[str, float]) -> Bars:
    """The figure of shares of 1."""
    left = 12 + _LETTER * max(map(len, shares))
    longest = max(shares.values()) or 1.0
    return Bars(
        left=left,
        width=left + _BAR + 40,
        height=_LINE * len(shares) + 4,
        bars=tuple(
            (_LINE * (index + 0.5), name, round(_BAR * share / longest, 1), f"{share:.0%}")
            for index, (name, share) in enumerate(shares.items())
        ),
    )
