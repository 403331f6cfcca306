"""Plan a table: rows at a scale with seeds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ablations.files import SHOWN, check_name
from ablations.tables.changes import COLUMNS, Value, columns, with_changes
from ablations.tables.own_measures import OwnMeasure, split_measures
from ablations.tables.scale import Divisors, Scale
from ablations.tables.table import Cell, Reported, Row, Table
from ablations.tables.trainings import Training, check_checkpoints, trainings_of
from ablations.tables.tune import Tune
from experiments.devices import MOST
from experiments.records.experiment import Experiment
from experiments.records.result import MEASURES, Measure
from transformer.config import Config, from_dict, to_dict
from transformer.corpus import Corpus
from transformer.errors import InputError, unknown_name

_MEASURES_OF_TASK = {
    "translation": ("perplexity", "bleu", "chrf"),
    "parsing": ("perplexity", "f1"),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedRow(Row):
    """A row at a scale.

    ``scaled`` are its changes as they are run, and what the scale sets for this row alone.
    ``corpus`` is None if it is the base's. ``seeds`` is empty for a row that is not to be run.
    """

    scaled: dict[str, Value]
    seeds: tuple[int, ...]
    corpus: Corpus | None = None

    def __post_init__(self) -> None:
        if not self.published:  # its runs have folders of this name
            check_name("row", self.name)
        elif self.seeds:
            raise InputError(f"row {self.name[:SHOWN]!r} is only shown, but has seeds")
        if not all(0 <= seed < 2**63 for seed in self.seeds):
            raise InputError(f"row {self.name[:SHOWN]!r} has a seed below 0, or above 63 bits")

    @property
    def is_base(self) -> bool:
        """Whether it is run without any change."""
        return not self.changes and not self.published

    def settings(self, base: Config) -> dict[str, Value]:
        """The row's settings on ``base``; for a published row only its changes are its own."""
        settings = columns(self.configure(base))
        return {**settings, **self.changes} if self.published else settings

    def changed(self, base: Config) -> frozenset[str]:
        """The columns of Table 3, and the row's own changes, that differ from ``base``."""
        theirs = columns(base)
        return frozenset(
            name
            for name, value in self.settings(base).items()
            if (name not in theirs or value != theirs[name])
            and (name in COLUMNS or name in self.changes)
        )

    def configure(self, base: Config, **more: object) -> Config:
        """The row's configuration on top of ``base``, with ``more`` fields changed."""
        corpus = {} if self.corpus is None else {"corpus": self.corpus}
        return with_changes(base, {**self.scaled, **corpus, **more})


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan(Divisors):
    """A table at a scale.

    ``base`` is the base's configuration as it is run; its seed is not used. ``measures`` are the
    scores that the table compares; ``own_measures`` are those of them that are the user's.
    ``decoding_speed`` and ``tune`` are the table's.
    """

    table: str
    title: str
    scale: str
    base: Config
    rows: tuple[PlannedRow, ...]
    measures: tuple[str, ...] = ("perplexity", "bleu")
    own_measures: tuple[OwnMeasure, ...] = ()
    decoding_speed: bool = False
    tune: Tune | None = None

    def __post_init__(self) -> None:
        corpus = self.base.data.corpus
        own = [measure.name for measure in self.own_measures]
        for name in self.measures:
            if self.measures.count(name) > 1:
                raise InputError(f"table {self.table!r} has the measure {name!r} twice")
            if name in own:
                continue
            if name not in MEASURES:
                raise unknown_name("measure", name, MEASURES)
            if name.removeprefix("test_") not in _MEASURES_OF_TASK[corpus.task]:
                raise InputError(f"measure {name!r} is not one of {corpus.task}")
        if not self.rows:
            raise InputError(f"table {self.table!r} has no rows")
        if not self.valid_measures:
            raise InputError(f"table {self.table!r} needs a validation score, such as perplexity")
        if len(self.cells) > MOST:
            raise InputError(f"table {self.table!r} has {len(self.cells):,} runs: at most {MOST:,}")
        for row in self.rows:
            if not row.published:
                row.configure(self.base)  # raises an error if the configuration is invalid

    @property
    def name(self) -> str:
        """The name under which it is tracked."""
        return f"{self.table}-{self.scale}"

    @property
    def cells(self) -> tuple[Cell, ...]:
        """The runs: each row with each of its seeds, in the table's order."""
        return tuple(Cell(row.name, seed) for row in self.rows for seed in row.seeds)

    def with_cells(self, cells: Iterable[Cell]) -> Plan:
        """The plan with only these runs, of the rows that it has."""
        seeds: dict[str, set[int]] = {row.name: set() for row in self.rows if not row.published}
        for cell in cells:
            if cell.row in seeds:
                seeds[cell.row].add(cell.seed)
        rows = [replace(row, seeds=tuple(sorted(seeds.get(row.name, ())))) for row in self.rows]
        return replace(self, rows=tuple(rows))

    @property
    def compared(self) -> tuple[Measure, ...]:
        """The measures that the table compares."""
        own = {measure.name: measure.measure for measure in self.own_measures}
        return tuple(own.get(name) or MEASURES[name] for name in self.measures)

    @property
    def valid_measures(self) -> tuple[str, ...]:
        """The measures of the validation set, without the user's: the values of Optuna's trials."""
        return tuple(x.name for x in self.compared if not x.is_of_test and not x.key)

    @property
    def has_test(self) -> bool:
        """Whether a measure is of the test set."""
        return any(measure.is_of_test for measure in self.compared)

    @property
    def is_compared(self) -> bool:
        """Whether the paper reports numbers for some row."""
        return any(row.reported != Reported() for row in self.rows)

    @property
    def shown(self) -> tuple[str, ...]:
        """Table 3's columns, then other settings that rows change, options last."""
        changed = dict.fromkeys(
            name for row in self.rows for name in sorted(row.changed(self.base))
        )
        known = (x for x in columns(self.base) if x in changed)
        return tuple(dict.fromkeys((*COLUMNS, *known, *changed)))

    @property
    def configs(self) -> dict[str, Config]:
        """The configuration of each row as it is run, with the base's seed."""
        return {row.name: row.configure(self.base) for row in self.rows if not row.published}

    @property
    def trainings(self) -> tuple[Training, ...]:
        """The trainings of all rows, including rows without seeds."""
        return trainings_of(self.configs)

    def row(self, name: str) -> PlannedRow:
        """The row of that name."""
        return next(row for row in self.rows if row.name == name)

    def experiment(self, cell: Cell) -> Experiment:
        """The experiment of ``cell``, with the names under which it is tracked."""
        row = self.row(cell.row)
        name = f"{self.name}/{cell.row}"
        reported = {name: getattr(row.reported, name, None) for name in self.measures}
        return Experiment(
            name=name,
            description=f"{self.title}, row {cell.row} at scale {self.scale}",
            config=row.configure(self.base, seed=cell.seed),
            splits=("valid", "test") if self.has_test else ("valid",),
            group=name,
            tags=(self.table, self.scale, cell.row, f"seed-{cell.seed}"),
            labels={"table": self.table, "scale": self.scale, "row": cell.row},
            reported={name: x for name, x in reported.items() if x is not None},
            own_measures=tuple(measure.function for measure in self.own_measures),
        )


def make_plan(table: Table, scale: Scale, rows: Sequence[Row], seeds: Sequence[int]) -> Plan:
    """The plan to run ``rows`` of ``table`` with each of ``seeds``."""
    base = table.configure(None, scale)
    measures, own_measures = split_measures(table.measures)
    unchanged = columns(base)

    def plan_row(row: Row) -> PlannedRow:
        config = base if row.published else table.configure(row, scale)
        seeds_of_row = tuple(sorted(seeds)) if row in rows and not row.published else ()
        if seeds_of_row:
            check_checkpoints(row.name, config)
        scaled = {
            name: value
            for name, value in columns(config).items()
            if name != "target_language"
            and (name in row.changes or name not in unchanged or value != unchanged[name])
        }
        return PlannedRow(
            name=row.name,
            reported=row.reported,
            changes=row.changes,
            published=row.published,
            reference=row.reference,
            scaled={} if row.published else scaled,
            seeds=seeds_of_row,
            corpus=None if config.data.corpus == base.data.corpus else config.data.corpus,
        )

    plan = Plan(
        table=table.name,
        title=table.title,
        scale=scale.name,
        divide_widths=scale.divide_widths,
        divide_layers=scale.divide_layers,
        divide_dropout=scale.divide_dropout,
        base=base,
        rows=tuple(plan_row(row) for row in table.rows),
        measures=measures,
        own_measures=own_measures,
        decoding_speed=table.decoding_speed,
        tune=table.tune,
    )
    if base.data.corpus.test is None and plan.has_test:
        raise InputError(f"table {table.name!r} measures a test set, but its corpus has none")
    return from_dict(Plan, to_dict(plan), f"table {table.name!r}")  # checks all types
