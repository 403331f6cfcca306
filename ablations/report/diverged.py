"""The share of runs of each row that diverged."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from ablations.report.numbers import RowNumbers, TableNumbers
from ablations.report.statistics import share_interval


def shares_of_diverged(table: TableNumbers) -> Iterator[str]:
    """A line for each row with a diverged run, then lines for the others; none if none diverged."""
    rows = [row for row in table.rows if row.results]
    if not any(row.diverged for row in rows):
        return
    sound: dict[int, list[str]] = defaultdict(list)
    for row in rows:
        if row.diverged:
            yield f"{row.name}: {_share(len(row.diverged), len(row.results))}{_steps(row)}"
        else:
            sound[len(row.results)].append(row.name)
    for count, names in sorted(sound.items(), reverse=True):
        yield f"{', '.join(names)}: {_share(0, count)}{' each' if len(names) > 1 else ''}"


def _share(count: int, total: int) -> str:
    low, high = share_interval(count, total)
    return f"diverged: {count} of {total} (95 % CI {100 * low:.0f} % to {100 * high:.0f} %)"


def _steps(row: RowNumbers) -> str:
    """The steps at which training ended; runs on a plateau took all steps."""
    ended = sorted(result.diverged_at for result in row.diverged if result.diverged_at)
    return f", at step {', '.join(f'{step:,}' for step in ended)}" if ended else ""
