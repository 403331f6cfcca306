"""The runs of a table that are left."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field

from ablations.folder import TableFolder
from ablations.runs.shared import has_training
from ablations.tables.table import Cell
from ablations.tables.trainings import trainings_of
from transformer.config import Config


def row_of(name: str) -> str:
    """The row of a run, by its name."""
    return name.partition("/")[0]


@dataclass(frozen=True, slots=True)
class Left:
    """The runs ``left`` without a result, and those of them that must be ``trained``: the others
    are scored with the training of one of those, or of a finished run. Rows in ``again`` repeat a
    training whose checkpoints are gone.
    """

    left: set[str] = field(default_factory=set[str])
    trained: set[str] = field(default_factory=set[str])
    again: dict[str, None] = field(default_factory=dict[str, None])

    @property
    def warnings(self) -> Iterator[str]:
        """A line if trainings are repeated."""
        if self.again:
            yield (
                f"the training of {', '.join(self.again)} is repeated, as no finished run that "
                "shares it has the checkpoints"
            )


def find_left(
    configs: Mapping[str, Config], seeds: Sequence[int], folder: TableFolder | None, ended: Set[str]
) -> Left:
    """The work that is left for these rows and seeds.

    Args:
        folder: the table's directory; None if there is none yet
        ended: the runs that have ended there
    """
    work = Left()
    for training in trainings_of(configs) if folder is None else folder.trainings:
        for seed in seeds:
            names = {str(Cell(row, seed)): row in configs for row in training.rows}
            done = [name for name in names if name in ended]
            left = [name for name, is_asked in names.items() if is_asked and name not in ended]
            work.left.update(left)
            untrained = [name for name in left if not _is_trained(folder, name, done)]
            first = untrained[:1]  # whose training the others share
            work.trained.update(first)
            if done:
                work.again.update(dict.fromkeys(map(row_of, first)))
    return work


def _is_trained(folder: TableFolder | None, name: str, others: Sequence[str]) -> bool:
    """Whether one of ``others``, which have ended, still has the training of this run."""
    if folder is None:
        return False
    config = folder.config(name)
    return any(has_training(folder.path / other, config) for other in others)
