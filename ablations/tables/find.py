"""Find tables, scales, rows and seeds by name."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from ablations.tables.scale import Scale
from ablations.tables.scales import SCALES
from ablations.tables.since import TABLE as SINCE
from ablations.tables.table import Row, Table
from ablations.tables.table2 import TABLE as TABLE2
from ablations.tables.table3 import TABLE as TABLE3
from ablations.tables.table4 import TABLE as TABLE4
from transformer.config import Config
from transformer.errors import InputError, unknown_name
from transformer.files import load_file

# A longer range is taken for a typing error.
_MOST_SEEDS = 1_000
TABLES = {table.name: table for table in (TABLE2, TABLE3, TABLE4, SINCE)}
# It has no rows to train; ablations.table1 measures it.
LAYERS_TABLE = "table1"


def load_table(name: str) -> Table:
    """A built-in table, or the ``TABLE`` of a Python file such as ``path/to/depth.py``.

    Relative paths of the corpora of its scales start at the file's folder.
    """
    if name in TABLES:
        return TABLES[name]
    if name == LAYERS_TABLE:
        raise InputError(f"{name} trains nothing: it can be run and reported, and no more")
    if not name.endswith(".py"):
        raise unknown_name("table", name, [LAYERS_TABLE, *TABLES, "FILE.py"])
    table = getattr(load_file(Path(name), "table"), "TABLE", None)
    if not isinstance(table, Table):
        raise InputError(f"{name} declares no TABLE = Table(…), see docs/tables.md")
    folder = Path(name).parent
    return replace(table, scales=tuple(scale.anchored(folder) for scale in table.scales))


class HasScales(Protocol):
    """A table or a search space, which may have scales of its own."""

    @property
    def base(self) -> Config: ...
    @property
    def scales(self) -> tuple[Scale, ...]: ...


def find_scale(declared: HasScales, name: str) -> Scale:
    """The scale called ``name``; one of the declaration's own replaces a built-in one."""
    task = declared.base.data.corpus.task
    fitting = (scale for scale in (*SCALES, *declared.scales) if scale.corpus.task == task)
    scales = {scale.name: scale for scale in fitting}
    if name not in scales:
        raise unknown_name("scale", name, scales)
    return scales[name]


def select_rows(table: Table, text: str | None) -> tuple[Row, ...]:
    """The rows of ``--rows``, such as ``base,A-h1``, in the table's order, or all rows for None."""
    if text is None:
        return table.run_rows
    names = [name.strip() for name in text.split(",")]
    known = [row.name for row in table.run_rows]
    for name in names:
        if name not in known:
            raise unknown_name("row", name, known)
        if names.count(name) > 1:
            raise InputError(f"row {name!r} is given twice")
    return tuple(row for row in table.rows if row.name in names)


def parse_seeds(text: str) -> tuple[int, ...]:
    """The seeds of ``--seeds``, such as ``1-3,7``."""
    seeds: list[int] = []
    for part in text.split(","):
        found = re.fullmatch(r"\s*(\d{1,19})\s*(?:-\s*(\d{1,19})\s*)?", part)
        if found is None:
            raise InputError(f"--seeds holds {part!r}, but takes whole numbers such as 1,2 or 1-5")
        first, last = int(found[1]), int(found[2] or found[1])
        if not first <= last < first + _MOST_SEEDS:
            raise InputError(
                f"--seeds holds {part!r}, but a range goes up, and to at most {_MOST_SEEDS:,} seeds"
            )
        for seed in range(first, last + 1):
            if seed in seeds:
                raise InputError(f"--seeds holds {seed} twice")
            seeds.append(seed)
    return tuple(seeds)
