"""A table's plan in its directory.

``table.json`` has everything that training and the report need, so that neither depends on a
declaration that may have changed since.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ablations.files import LAYERS_FILE, PLAN_FILE, SEARCH_FILE
from ablations.tables.changes import Value
from ablations.tables.plan import Plan
from experiments.devices import faster_precision
from transformer.config import OPTIONS_OF, Config, differences, from_dict, override, to_dict
from transformer.errors import InputError
from transformer.files import locked, make_directory, read_json, write_json
from transformer.variant import current_name

LOCK_FILE = ".plan.lock"


def load_plan(directory: Path) -> Plan:
    """The plan of a table's directory."""
    path = directory / PLAN_FILE
    if not path.is_file():
        kinds = (PLAN_FILE, SEARCH_FILE, LAYERS_FILE)
        below = sorted(found.parent for kind in kinds for found in directory.glob(f"*/{kind}"))
        hint = f"; one below it is {below[0]}" if below else ""
        raise InputError(
            f"{directory} is not the directory of a table: it has no {PLAN_FILE}{hint}"
        )
    try:
        return from_dict(Plan, read_json(path, remedy=""), str(path))
    except InputError as error:
        raise InputError(
            f"{error}: restore it or, if it is run's, delete it and call run again"
        ) from error


def share_arithmetic(base: Config, found: Config | None) -> Config:
    """``base`` with the precision and threads that all runs share, as both affect rounding.

    They are those of ``base``, else those of earlier runs, whose base is ``found``, else this
    machine's faster precision and one thread.
    """
    own, earlier = base.training, found and found.training
    precision = own.precision
    if precision == "auto":
        precision = earlier.precision if earlier else faster_precision(base.model.d_model)
    threads = own.threads or (earlier.threads if earlier else 1)
    return override(base, threads=threads, precision=precision)


def check_same(
    kind: str, directory: Path, found: Mapping[str, Any], new: Mapping[str, Any]
) -> None:
    """Check that a new table or search has the same settings as the one ``found`` there."""
    if changes := differences(found, new):
        by_name = [x for x in changes if x.startswith(("table:", "space:", "scale:"))]
        raise InputError(
            f"{directory} belongs to another {kind} ({'; '.join(by_name or changes)}): "
            "choose another directory, or remove this one"
        )


def settle_plan(directory: Path, plan: Plan) -> Plan:
    """``plan`` with the precision, threads and seeds of earlier runs in ``directory``.

    Rows may have changed since: runs that differ from the new plan become stale.

    Raises:
        InputError: if the runs are of another table or scale, or with other rounding.
    """
    found = load_plan(directory) if (directory / PLAN_FILE).exists() else None
    plan = replace(plan, base=share_arithmetic(plan.base, found and found.base))
    if found is None:
        return plan
    check_same("table", directory, _identity(found), _identity(plan))
    return plan.with_cells((*plan.cells, *found.cells))


def with_rows_there(directory: Path, plan: Plan) -> Plan:
    """``plan`` with the rows that only the plan in ``directory`` has, if there is one."""
    if not (directory / PLAN_FILE).exists():
        return plan
    rows = {row.name: row for row in load_plan(directory).rows}
    rows |= {row.name: row for row in plan.rows}
    return replace(plan, rows=tuple(rows.values()))


def claim_plan(directory: Path, plan: Plan) -> Plan:
    """Write ``plan`` to ``directory``, with the seeds of the plan there."""
    make_directory(directory)
    with locked(directory / LOCK_FILE):
        plan = settle_plan(directory, plan)
        write_json(directory / PLAN_FILE, to_dict(plan))
    return plan


def refresh_plan(directory: Path) -> None:
    """Update the sources of the plan's classes in the file, if they have changed."""
    with locked(directory / LOCK_FILE):
        found = load_plan(directory)
        now = with_current_sources(found)
        if now != found:
            write_json(directory / PLAN_FILE, to_dict(now))


def with_current_sources(plan: Plan) -> Plan:
    """``plan`` with the current sources of its classes, where they are available."""
    model, training = plan.base.model, plan.base.training
    model = replace(model, model=model.model and current_name(model.model))
    training = replace(training, method=training.method and current_name(training.method))
    rows = [
        replace(row, changes=_refreshed(row.changes), scaled=_refreshed(row.scaled))
        for row in plan.rows
    ]
    base = replace(plan.base, model=model, training=training)
    own_measures = [replace(x, function=current_name(x.function)) for x in plan.own_measures]
    return replace(plan, base=base, rows=tuple(rows), own_measures=tuple(own_measures))


def _refreshed(settings: dict[str, Value]) -> dict[str, Value]:
    names = {name: current_name(str(settings[name])) for name in OPTIONS_OF if settings.get(name)}
    return {**settings, **names}


def _identity(plan: Plan) -> dict[str, Any]:
    """The settings that all runs of a table share and that must not change."""
    training = plan.base.training
    arithmetic = {"precision": training.precision, "threads": training.threads}
    return {"table": plan.table, "scale": plan.scale, **arithmetic}
