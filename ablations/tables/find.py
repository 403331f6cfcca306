"""Find tables, scales, rows and seeds by name."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from ablations.tables.all_you_need import TABLE as ALL_YOU_NEED
from ablations.tables.decoding import TABLE as DECODING
from ablations.tables.depths import PRE_NORM as DEPTHS_PRE_NORM
from ablations.tables.depths import TABLE as DEPTHS
from ablations.tables.norms import EARLY as NORMS_EARLY
from ablations.tables.norms import TABLE as NORMS
from ablations.tables.optimizers import TABLE as OPTIMIZERS
from ablations.tables.optimizers import UNTUNED as OPTIMIZERS_UNTUNED
from ablations.tables.plan import Plan, make_plan
from ablations.tables.scale import Scale
from ablations.tables.scales import SCALES
from ablations.tables.since import TABLE as SINCE
from ablations.tables.since import TUNED as SINCE_TUNED
from ablations.tables.table import Declaration, Row, Table
from ablations.tables.table2 import TABLE as TABLE2
from ablations.tables.table3 import TABLE as TABLE3
from ablations.tables.table4 import TABLE as TABLE4
from experiments.catalog.find import EXPERIMENTS
from experiments.catalog.own_text import FILES, amount_of, corpus_of_folder
from experiments.devices import MOST
from transformer.config import Config
from transformer.errors import InputError, unknown_name
from transformer.fields import fits
from transformer.python_files import load_file

_MOST_SEEDS = 1_000  # a longer range is probably a typing error
_ALL = (
    *(TABLE2, TABLE3, TABLE4, SINCE, SINCE_TUNED, DECODING),
    *(ALL_YOU_NEED, DEPTHS, DEPTHS_PRE_NORM, NORMS, NORMS_EARLY),
    *(OPTIMIZERS, OPTIMIZERS_UNTUNED),
)
TABLES = {table.name: table for table in _ALL}
# Measured by ablations.table1 instead of trained.
LAYERS_TABLE = "table1"

Declared = TypeVar("Declared", bound=Declaration)


@dataclass(frozen=True, kw_only=True, slots=True)
class Selection:
    """The runs of a table that a command is for; the fields' docstrings are the options' help."""

    scale: str | None = None
    """a scale that list prints [default for files:FOLDER: chosen by the amount of text]"""

    seeds: str | None = None
    """seeds to train each row with, such as 1-3,7 [default: 1, or those of a tuned table]"""

    rows: str | None = None
    """rows to train, such as base,A-h1 [default: all]"""

    directory: Path | None = None
    """directory for the runs [default: runs/TABLE-SCALE]"""

    def seeds_of(self, table: Table) -> tuple[int, ...]:
        """The seeds given, or the table's default."""
        if self.seeds is None:
            return (1,) if table.tune is None else table.tune.seeds
        seeds = parse_seeds(self.seeds)
        if table.tune is not None:
            table.tune.check(seeds)
        return seeds

    def plan(self, table: Table, scale: Scale | None = None) -> tuple[Plan, Path]:
        """The plan of these runs of ``table``, and their directory.

        Args:
            scale: a scale that was made for the user's own text
        """
        rows = select_rows(table, self.rows)
        seeds = self.seeds_of(table)
        if len(rows) * len(seeds) > MOST:
            raise InputError(f"{len(rows)} rows with {len(seeds):,} seeds are over {MOST:,} runs")
        plan = make_plan(table, scale or find_scale(table, self.scale), rows, seeds)
        return plan, self.directory or Path("runs") / plan.name


def load_table(name: str) -> Table:
    """A built-in table, or the ``TABLE`` of a Python file such as ``path/to/depth.py``."""
    if name == LAYERS_TABLE:
        raise InputError(f"{name} is measured: run it with only --directory, --device and --quick")
    return load_declared(Table, name, TABLES)


def load_declared(kind: type[Declared], name: str, known: Mapping[str, Declared]) -> Declared:
    """The declaration of that name, or the ``TABLE`` or ``SPACE`` of a Python file.

    Relative paths of its corpora are relative to the file's folder.
    """
    word = kind.__name__.lower()
    if name in known:
        return known[name]
    if not name.endswith(".py"):
        raise unknown_name(word, name, [*known, "FILE.py"])
    found = getattr(load_file(Path(name), word), word.upper(), None)
    if not isinstance(found, kind):
        raise InputError(f"{name} declares no {word.upper()} = {kind.__name__}(…), see docs/")
    if not fits(found.base, Config):
        raise InputError(f"{name}: its base must be a Config, like BASE or an experiment's .config")
    try:
        return replace(found, scales=tuple(x.anchored(Path(name).parent) for x in found.scales))
    except (TypeError, AttributeError) as error:
        raise InputError(f"{name}: its scales must be a tuple: scales=(scale(…),)") from error


def find_scale(declared: Declaration, name: str | None) -> Scale:
    """The scale called ``name``; the declaration's own scales replace built-in ones."""
    every, task = (*SCALES, *declared.scales), declared.base.data.corpus.task
    scales = {scale.name: scale for scale in every if scale.corpus.task == task}
    if name is None:
        raise InputError(f"{declared.name} needs --scale: list prints the scales")
    if name not in scales:
        raise unknown_name("scale", name, scales)
    return scales[name]


def scale_on(declared: Declaration, name: str | None, text: str | None) -> Scale:
    """The scale called ``name``, on the corpus that ``text`` names as ``files:FOLDER``.

    Without a name it is the scale of the built-in corpus that is nearest in size. Without a text,
    this is :func:`find_scale`.
    """
    if text is None:
        return find_scale(declared, name)
    if not text.startswith(FILES):
        raise InputError(f"{text} names no text: write it as {FILES}FOLDER, or {FILES}FOLDER:de-en")
    if (task := declared.base.data.corpus.task) != "translation":
        raise InputError(f"{declared.name} is about {task}, but {text} is text to translate")
    corpus = corpus_of_folder(text)
    amount = amount_of(corpus)
    theirs = EXPERIMENTS[amount.like].config.data.corpus
    suited = next(scale.name for scale in SCALES if scale.corpus == theirs)
    found = find_scale(declared, name or suited)
    chosen = "" if name else f", which suits scale {suited} (--scale chooses another)"
    return found.on(corpus, amount, f"{text}: {amount} of training text{chosen}")


def select_rows(table: Table, text: str | None) -> tuple[Row, ...]:
    """The rows of ``--rows``, such as ``base,A-h1``, in the table's order; all rows for None."""
    if text is None:
        return table.run_rows
    names = parse_rows(text, [row.name for row in table.run_rows])
    return tuple(row for row in table.rows if row.name in names)


def parse_rows(text: str, known: Sequence[str]) -> list[str]:
    """The names of rows in a text such as ``base,A-h1``."""
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in known:
            raise unknown_name("row", name, known)
        if names.count(name) > 1:
            raise InputError(f"row {name!r} is given twice")
    return names


def parse_seeds(text: str) -> tuple[int, ...]:
    """The seeds of ``--seeds``, such as ``1-3,7``, in order."""
    seeds: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,18})\s*(?:-\s*(\d{1,18})\s*)?", part)
        first, last = 1, 0  # which is refused
        if match is not None:
            first, last = int(match[1]), int(match[2] or match[1])
        if not first <= last < first + _MOST_SEEDS:
            raise InputError(
                f"--seeds holds {part!r}, but takes whole numbers and ranges such as 1-5,7, of at "
                f"most {_MOST_SEEDS:,} seeds"
            )
        seeds += range(first, last + 1)
        if len(seeds) > MOST:
            raise InputError(f"--seeds holds more than {MOST:,} seeds")
    if twice := [seed for seed, count in Counter(seeds).items() if count > 1]:
        raise InputError(f"--seeds holds {twice[0]} twice")
    return tuple(sorted(seeds))
