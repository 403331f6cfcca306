"""One spread for all rows, and comparisons by it."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ablations.report.statistics import CONFIDENCE, Estimate

Array = NDArray[np.float64]
_DRAWS, _TABLES = 100_000, 20_000


@dataclass(frozen=True, slots=True)
class Pool:
    """The spread that is left of a table's figures after the effects of row and seed.

    ``deviation`` is the residual standard deviation with ``freedom`` degrees of freedom, and
    ``p_equal`` the p value of a test that it is the same in all rows. Three seeds leave the
    interval of a single row two degrees of freedom, twenty rows of them 38.
    """

    deviation: float
    freedom: int
    p_equal: float

    @property
    def is_usable(self) -> bool:
        """True if the test does not reject that all rows have the same variance."""
        return self.p_equal >= 1 - CONFIDENCE

    def apply(self, paired: Estimate) -> Estimate:
        """A row less the base with the pooled deviation in place of its own, if it is usable."""
        if not self.is_usable or not math.isfinite(paired.mean):
            return paired
        deviation = math.sqrt(2) * self.deviation
        return dataclasses.replace(paired, deviation=deviation, pooled_freedom=self.freedom)


def pool(rows: Mapping[str, Mapping[int, float]]) -> Pool | None:
    """The residuals of the two-way model row + seed, fitted to ``rows`` (values by seed).

    Rows may lack seeds; one with a value that is not finite is left out. None if no degree of
    freedom is left. Equal variances are tested by the largest of the rows' residual variances, as
    a share of all squares (Cochran's C), against the same share in simulated tables: residuals
    depend on each other, so that textbook tests reject too often.
    """
    finite = [row for row in rows.values() if row and all(map(math.isfinite, row.values()))]
    cells = tuple((index, seed) for index, row in enumerate(finite) for seed in row)
    if not cells:
        return None
    design = _design(cells)
    if design.freedom < 1:
        return None
    observed = np.array([value for row in finite for value in row.values()])
    residuals = design.residuals(observed - observed.mean())
    # Seeds that agree to the last digit leave rounding errors.
    residuals[np.abs(residuals) < 1e-12 * np.abs(observed).max()] = 0
    deviation = math.sqrt((residuals**2).sum() / design.freedom)
    largest = design.largest_share(residuals) * (1 - 1e-9)
    as_large = int((_simulated(cells) >= largest).sum())
    return Pool(deviation, design.freedom, (as_large + 1) / (_TABLES + 1))


@dataclass(frozen=True, slots=True)
class _Design:
    """A table's rows and seeds: what the model row + seed leaves of its figures, one per cell.

    ``basis`` spans what the model can fit, (cells, rank). ``rows`` are indicators of the rows that
    it does not fit exactly, (cells, rows), and ``row_freedom`` their degrees of freedom.
    """

    basis: Array
    rows: Array
    row_freedom: Array
    freedom: int

    def residuals(self, figures: Array) -> Array:
        """The residuals of one table, (cells,), or of several, (tables, cells)."""
        return figures - figures @ self.basis @ self.basis.T

    def largest_share(self, residuals: Array) -> Array:
        """The largest residual variance of a row as a share of all squares, for each table."""
        squares = residuals**2 @ self.rows
        total = squares.sum(axis=-1)
        return (squares / self.row_freedom).max(axis=-1) / (total + (total == 0))


@functools.cache
def _design(cells: tuple[tuple[int, int], ...]) -> _Design:
    """The design with these cells, each a row's index and a seed."""
    row, seed = (np.array([cell[part] for cell in cells], dtype=int) for part in (0, 1))
    rows = (row[:, None] == np.unique(row)).astype(float)
    effects = np.hstack([rows, (seed[:, None] == np.unique(seed)).astype(float)])
    vectors, sizes, _ = np.linalg.svd(effects, full_matrices=False)
    basis = vectors[:, sizes > 1e-9]
    freedom = (1 - (basis**2).sum(axis=1)) @ rows
    left = freedom > 1e-9
    return _Design(basis, rows[:, left], freedom[left], len(cells) - basis.shape[1])


@functools.cache
def _simulated(cells: tuple[tuple[int, int], ...]) -> Array:
    """The largest shares of tables of normal numbers with these cells."""
    random, design = np.random.default_rng(0), _design(cells)
    normal = (random.standard_normal((_TABLES // 20, len(cells))) for _ in range(20))
    return np.concatenate([design.largest_share(design.residuals(x)) for x in normal])


@functools.cache
def dunnett(seeds: tuple[frozenset[int], ...], freedom: int) -> float:
    """The critical value of Dunnett's test, in standard errors, for a family-wise error of 5 %.

    The quantile of the largest |t| (Dunnett 1955), by simulation to about 0.02. Unlike in the usual
    test, the samples are not independent: rows share seeds with the base.

    Args:
        seeds: for each row those that it shares with the base; rows that share them with each
            other are correlated through the base's runs
        freedom: of the pooled deviation
    """
    correlation = np.array(
        [[len(x & y) / (2 * math.sqrt(len(x) * len(y))) for y in seeds] for x in seeds]
    )
    np.fill_diagonal(correlation, 1.0)
    random = np.random.default_rng(0)
    normal = random.standard_normal((_DRAWS, len(seeds))) @ np.linalg.cholesky(correlation).T
    scale = np.sqrt(random.chisquare(freedom, _DRAWS) / freedom)
    return float(np.quantile(np.abs(normal).max(axis=1) / scale, CONFIDENCE))
