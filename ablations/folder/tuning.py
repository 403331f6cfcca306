"""Choose the learning rates of a tuned table's rows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, replace

from ablations.tables.plan import Plan, PlannedRow
from ablations.tables.tune import Tune
from experiments.records.run import Run
from transformer.config import override
from transformer.formats import MISSING


@dataclass(frozen=True, slots=True)
class Tuned:
    """A row's final perplexity at each factor of its learning rate; infinite where it is not
    finite.
    """

    tune: Tune
    perplexities: Mapping[float, float]

    @property
    def factor(self) -> float:
        """The best factor; of equally good ones, the one nearest to 1."""
        return min(self.perplexities, key=lambda x: (self.perplexities[x], abs(math.log(x))))

    @property
    def is_at_edge(self) -> bool:
        """Whether the best factor is the first or the last of the declared ones, or beyond them."""
        return not self.tune.factors[0] < self.factor < self.tune.factors[-1]

    @property
    def beyond(self) -> float | None:
        """The next factor to try, if the best one is at an edge; else None."""
        below, above = self.tune.beyond
        found = below if self.factor <= self.tune.factors[0] else above
        return found if self.is_at_edge and found not in self.perplexities else None


def candidate(row: str, factor: float) -> str:
    """The name of the row that trains ``row`` at this factor of its learning rate."""
    return f"{row}-x{factor:g}"


def plan_candidates(plan: Plan, beyond: Set[str] = frozenset()) -> Plan:
    """The table that trains each row of a tuned table at each factor of its learning rate.

    Args:
        beyond: candidates at factors beyond the declared ones, which are trained too
    """
    assert plan.tune is not None
    rows: list[PlannedRow] = []
    for row in plan.rows:
        if row.published:
            continue
        for factor in sorted({*plan.tune.factors, *plan.tune.beyond}):
            name = candidate(row.name, factor)
            is_trained = bool(row.seeds) and (factor in plan.tune.factors or name in beyond)
            changed = row if factor == 1.0 else _at(row, _rate(plan, row) * factor)
            seeds = (plan.tune.seed,) if is_trained else ()
            rows.append(replace(changed, name=name, seeds=seeds))
    title = f"{plan.title}: learning rates"
    return replace(plan, table=f"{plan.table}-tuning", title=title, rows=tuple(rows), tune=None)


def choose(plan: Plan, candidates: Iterable[Run]) -> dict[str, Tuned]:
    """The tuned rows whose candidates have all finished, by name.

    Only the seed that chooses counts; candidates may have runs with other seeds, taken from another
    table.
    """
    assert plan.tune is not None
    runs = {run.row: run for run in candidates if run.seed == plan.tune.seed}
    chosen: dict[str, Tuned] = {}
    for row in plan.rows:
        perplexities: dict[float, float] = {}
        is_complete = True
        for factor in sorted({*plan.tune.factors, *plan.tune.beyond}):
            run = runs.get(candidate(row.name, factor))
            if run is not None and run.result is not None:
                value = run.result.perplexity
                perplexities[factor] = value if math.isfinite(value) else math.inf
            elif run is not None or factor in plan.tune.factors:
                is_complete = False
        if is_complete:
            chosen[row.name] = Tuned(plan.tune, perplexities)
    return chosen


def still_to_try(chosen: Mapping[str, Tuned]) -> set[str]:
    """The candidates beyond the declared factors that rows still need."""
    return {candidate(row, x.beyond) for row, x in chosen.items() if x.beyond is not None}


def with_chosen(plan: Plan, chosen: Mapping[str, Tuned]) -> Plan:
    """A tuned table with the chosen learning rates; rows that have none yet get no seeds."""
    base = plan.base
    rows: list[PlannedRow] = []
    for row in plan.rows:
        found = chosen.get(row.name)
        if found is None:
            rows.append(replace(row, seeds=()))
            continue
        rate = _rate(plan, row) * found.factor
        if row.is_base:
            base = override(base, learning_rate_factor=rate)
            rows.append(row)
        else:
            rows.append(_at(row, rate))
    return replace(plan, base=base, rows=tuple(rows))


def _rate(plan: Plan, row: PlannedRow) -> float:
    """The learning-rate factor that a row declares."""
    return row.configure(plan.base).training.learning_rate_factor


def _at(row: PlannedRow, rate: float) -> PlannedRow:
    """The row with this learning-rate factor instead of the base's or its own."""
    rate_alone = {"learning_rate_factor": rate}
    return replace(row, changes={**row.changes, **rate_alone}, scaled={**row.scaled, **rate_alone})


def described(chosen: Mapping[str, Tuned]) -> list[str]:
    """A line for each row: its chosen factor, and the perplexity at each factor."""
    lines: list[str] = []
    for row, tuned in chosen.items():
        by_factor = [
            f"x{factor:g} {value:.3f}" if math.isfinite(value) else f"x{factor:g} {MISSING}"
            for factor, value in tuned.perplexities.items()
        ]
        edge = ", at the edge" if tuned.is_at_edge else ""
        lines.append(f"{row}: x{tuned.factor:g}{edge} ({', '.join(by_factor)})")
    return lines
