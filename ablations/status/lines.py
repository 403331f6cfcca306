"""How far a table has come, in lines for a terminal, from the files on disk."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from ablations.formats import duration, number
from ablations.reporting.summary import summarise
from ablations.status.states import describe_state


def describe(directory: Path) -> Iterator[str]:
    """One line for the table and one for each of its runs.

    Raises:
        InputError: if the directory is not a table's, or a file in it cannot be read.
    """
    summary = summarise(directory)
    unfinished = [item for row in summary.rows for item in row.unfinished]
    done = len(summary.results)
    yield f"{summary.plan.title} at scale {summary.plan.scale}: {done} of {done + len(unfinished)}"
    for row in summary.rows:
        for result in row.results:
            yield (
                f"  {row.row.name}/seed-{result.seed}: finished, perplexity "
                f"{number(result.perplexity, 2)}, BLEU {number(result.bleu, 1)}, "
                f"{duration(result.train_seconds)}"
            )
        for item in row.unfinished:
            age = ""
            if item.progress and item.progress.updated_at:
                age = f", {duration(time.time() - item.progress.updated_at)} ago"
            yield f"  {item.cell}: {describe_state(item)}{age}"
