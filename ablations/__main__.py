"""``python -m ablations``: train a table of runs, and report it beside the paper's figures."""

from __future__ import annotations

import errno
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import tyro
from tyro.conf import Positional, arg

from transformer.errors import InputError

# Imports of what a single command needs stand in that command: --help is to answer at once.

_OF_THE_MACHINE = (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS)


def list_tables() -> int:
    """Print the tables with their rows, and the scales."""
    from ablations.scales import SCALES
    from ablations.tables import TABLES, load_table

    for name in TABLES:
        table = load_table(name)
        print(f"{name}: {table.title}")
        print(f"    rows: {', '.join(row.name for row in table.rows)}")
    print("scales:")
    for scale in SCALES:
        print(
            f"    {scale.name}: {scale.corpus.name}, widths divided by {scale.divide_widths}, "
            f"N by {scale.divide_layers}, {scale.max_steps:,} steps"
        )
    return 0


def run(
    table: Annotated[Positional[str], arg(metavar="TABLE")],
    scale: Annotated[str, arg(metavar="quick|small|paper")],
    seeds: Annotated[str, arg(metavar="1,2,3")] = "1",
    rows: Annotated[str | None, arg(metavar="base,A-h1,…")] = None,
    workers: Annotated[int | None, arg(metavar="N")] = None,
    directory: Annotated[Path | None, arg(metavar="DIR")] = None,
) -> int:
    """Train what a table still lacks, then write and print its report.

    Interrupted and called again, it goes on where it was. Exit code 1: a run crashed.

    Args:
        table: A name that ``list`` prints, or a Python file that declares TABLE.
        scale: How the paper's sizes are mapped to this machine.
        seeds: Each row is trained once with each.
        rows: Only these; all rows without it.
        workers: Runs at a time; one per GPU, or one per core up to four, without it.
        directory: Where all of it goes; runs/TABLE-SCALE without it.
    """
    from ablations.coordinator import run_table

    return run_table(table, scale, seeds=seeds, rows=rows, workers=workers, directory=directory)


def status(directory: Annotated[Positional[Path], arg(metavar="DIRECTORY")]) -> int:
    """Print how far a table has come.

    Args:
        directory: The directory that ``run`` named.
    """
    from ablations.status import describe

    print("\n".join(describe(directory)))
    return 0


def report(directory: Annotated[Positional[Path], arg(metavar="DIRECTORY")]) -> int:
    """Write and print the report of a table, finished or not.

    Args:
        directory: The directory that ``run`` named.
    """
    from ablations.report import announce, write_report

    announce(write_report(directory), directory)
    return 0


def main() -> int:
    """Carry out the command line; the exit code is 2 for bad input."""
    commands: dict[str, Callable[..., int]] = {
        "list": list_tables,
        "run": run,
        "status": status,
        "report": report,
    }
    try:
        return tyro.extras.subcommand_cli_from_dict(
            commands, prog="python -m ablations", description=__doc__
        )
    except InputError as error:
        print(f"ablations: error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        if error.errno not in _OF_THE_MACHINE:
            raise
        print(f"ablations: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
