"""Student's t distribution for a whole number of degrees of freedom.

For those it is a finite sum (Abramowitz and Stegun 1964, 26.7.3 and 26.7.4), exact to rounding;
importing ``scipy.special`` for this one function takes longer than a whole report may.
"""

from __future__ import annotations

import functools
import math


@functools.cache
def quantile(probability: float, freedom: int) -> float:
    """The value that t with ``freedom`` degrees of freedom stays below with ``probability``.

    ``probability`` is at least a half and below 1.

    Example:
        >>> round(quantile(0.975, 2), 3)
        4.303
    """
    central = 2 * probability - 1
    low, high = 0.0, math.pi / 2
    # In the angle the probability rises from 0 to 1, and halving finds every bit of it.
    while low < (middle := (low + high) / 2) < high:
        if _within(middle, freedom) < central:
            low = middle
        else:
            high = middle
    return math.sqrt(freedom) * math.tan(low)


def _within(angle: float, freedom: int) -> float:
    """The probability that t lies within √freedom · tan(angle) of 0."""
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = freedom % 2
    term = cosine if odd else 1.0
    total = 0.0
    for factor in range(1 + odd, freedom, 2):
        total += term
        term *= cosine * cosine * factor / (factor + 1)
    return 2 / math.pi * (angle + sine * total) if odd else sine * total
