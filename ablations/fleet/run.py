"""One call of ``run``: from the words of the command line to a report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from ablations.fleet.display import Display
from ablations.fleet.lock import coordinate
from ablations.fleet.machine import Slot, slots
from ablations.fleet.queue import STORAGE_ERRORS, STUDY_FILE, Queue
from ablations.fleet.worker import Execution, Outcome, load_results
from ablations.plan import Plan, claim_plan, make_plan
from ablations.reporting.report import announce, write_report
from ablations.table import Cell
from ablations.tables import find_scale, load_table, parse_seeds, select_rows
from experiments import process
from transformer.errors import InputError


def run_table(
    table: str,
    scale: str,
    *,
    seeds: str,
    rows: str | None,
    workers: int | None,
    directory: Path | None,
) -> int:
    """Train what the table lacks and report it; the exit code.

    Raises:
        InputError: for anything that the user gave and that cannot be used.
    """
    declared = load_table(table)
    names = None if rows is None else [name.strip() for name in rows.split(",")]
    plan = make_plan(
        declared, find_scale(declared, scale), select_rows(declared, names), parse_seeds(seeds)
    )
    places = slots(workers)
    root = directory or Path("runs") / f"{plan.table}-{plan.scale}"
    console = Console(highlight=False)
    with coordinate(root):
        wanted = plan.cells
        plan = claim_plan(root, plan)
        try:
            outcome = _execute(plan, wanted, root, places, console)
        except STORAGE_ERRORS as error:
            reason = str(error).splitlines()[0]
            raise InputError(f"the study in {root} cannot be written: {reason}") from error
        finally:
            document = write_report(root)
    announce(document, root)
    if outcome.signal is not None:
        console.print("stopped; the same command goes on from here", soft_wrap=True)
        return 128 + outcome.signal
    return 1 if outcome.failed else 0


def _execute(
    plan: Plan, cells: Sequence[Cell], root: Path, places: Sequence[Slot], console: Console
) -> Outcome:
    done = load_results(plan, root)
    todo = [cell for cell in cells if cell not in done]
    device = "GPU" if places[0].device is not None else "CPU"
    console.print(
        f"{plan.table} at scale {plan.scale} in {root}: {len(cells)} runs, "
        f"{len(cells) - len(todo)} done before, {min(len(places), len(todo))} at a time on the "
        f"{device}",
        soft_wrap=True,
    )
    if not todo:
        return Outcome()
    queue = Queue(f"sqlite:///{root / STUDY_FILE}", f"{plan.table}-{plan.scale}")
    execution = Execution(
        plan, cells, root, queue=queue, slots=places, display=Display(console), start=process.start
    )
    return execution.run()
