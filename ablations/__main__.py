"""Train a table of runs, and report it beside the paper's figures."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from ablations import commands
from experiments.command_line import Command, Parser, make_parser, run_command_line


def _table(command: argparse.ArgumentParser) -> None:
    add = command.add_argument
    add("table", metavar="TABLE", help="a name that list prints, or a file such as my_table.py")
    add("--scale", required=True, metavar="SCALE", help="what the sizes become; list prints them")
    add("--seeds", default="1", metavar="1-3,7", help="each row is trained once with each")
    add("--rows", metavar="base,A-h1,...", help="only these (default: all)")
    add("--directory", type=Path, metavar="DIR", help="of the runs (default: runs/TABLE-SCALE)")


def _directory(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "directory", type=Path, metavar="DIRECTORY", help="of a table's or a search's runs"
    )


# As SQLAlchemy reads a URL: before the host, or among the parameters.
_PASSWORD = re.compile(r"://[^:/]*:[^@]*@|[?&](ssl)?password=")


def _storage(url: str) -> str:
    """Refuse a password: W&B records the command line, and everybody here can list processes."""
    if _PASSWORD.search(url):
        raise argparse.ArgumentTypeError(
            "the command line is no place for a password, as W&B records it: "
            "put the URL into OPTUNA_STORAGE, or the password into ~/.pgpass"
        )
    return url


def _arithmetic(command: argparse.ArgumentParser) -> None:
    """What changes the rounding, and so is the same for all runs of a directory."""
    add = command.add_argument
    add(
        "--precision",
        choices=("bf16", "fp32"),
        help="of products (default: as earlier runs, or bf16 where this machine multiplies it)",
    )
    add("--threads", type=int, metavar="N", help="CPU threads of a run (default: as before, or 1)")


def _places(command: argparse.ArgumentParser) -> None:
    """How many runs there are at a time."""
    add = command.add_argument
    add(
        "--workers",
        type=int,
        metavar="N",
        help="runs at a time (default: one for each GPU, or each core where there is none)",
    )
    add("--devices-per-trial", type=int, default=1, metavar="K", help="GPUs of one run")
    add("--trials-per-device", type=int, default=1, metavar="K", help="runs on a GPU, or core")


def _retry_failed(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--retry-failed", action="store_true", help="also run what was given up before"
    )


def _worker_options(command: argparse.ArgumentParser) -> None:
    """What every worker takes."""
    add = command.add_argument
    add(
        "--storage",
        type=_storage,
        metavar="URL",
        help="database that all workers share, such as postgresql://user@host/name "
        "(default: OPTUNA_STORAGE, or a file in the directory, for one machine)",
    )
    _places(command)
    add("--accumulate", type=int, default=1, metavar="K", help="parts of a step, to save memory")
    add("--retries", type=int, default=2, metavar="N", help="of a run that failed")


def _nothing(command: argparse.ArgumentParser) -> None:
    del command


def _plan(command: argparse.ArgumentParser) -> None:
    _table(command)
    add = command.add_argument
    add(
        "--device",
        metavar="NAME",
        help="a GPU that need not be here, such as H100 (default: what this machine has)",
    )
    add(
        "--devices",
        type=int,
        metavar="N",
        help="GPUs, or cores (default: those of this machine, or of one run with --device)",
    )
    _places(command)
    add("--json", action="store_true", help="one object, see ablations/costs/estimate.py")


def _run(command: argparse.ArgumentParser) -> None:
    _table(command)
    command.add_argument(
        "--from",
        dest="earlier",
        type=Path,
        metavar="DIR",
        help="copy the finished runs of DIR, such as a committed result, first (default: none)",
    )
    _retry_failed(command)
    _arithmetic(command)
    _worker_options(command)


def _search(command: argparse.ArgumentParser) -> None:
    add = command.add_argument
    add("space", metavar="SPACE", help="a name that list prints, or a file such as my_space.py")
    add("--scale", required=True, metavar="SCALE", help="what the sizes become; list prints them")
    add("--trials", type=int, required=True, metavar="N", help="how many in all")
    add("--seed", type=int, default=1, metavar="N", help="of all trials, and of what is drawn")
    add("--directory", type=Path, metavar="DIR", help="of the runs (default: runs/SPACE-SCALE)")
    _retry_failed(command)
    _arithmetic(command)
    _worker_options(command)


def _worker(command: argparse.ArgumentParser) -> None:
    _directory(command)
    _worker_options(command)


def _status(command: argparse.ArgumentParser) -> None:
    _directory(command)
    add = command.add_argument
    add(
        "--storage",
        type=_storage,
        metavar="URL",
        help="database to ask where the directory is not seen (default: OPTUNA_STORAGE)",
    )
    add("--watch", action="store_true", help="show it again and again until all is done")
    add("--json", action="store_true", help="one object, see ablations/status/model.py")


def _collect(command: argparse.ArgumentParser) -> None:
    _directory(command)
    command.add_argument(
        "--into", dest="target", type=Path, required=True, metavar="DIR", help="made if missing"
    )


def _compare(command: argparse.ArgumentParser) -> None:
    _directory(command)
    add = command.add_argument
    add("first", metavar="ROW", help="a row that report shows")
    add("second", metavar="ROW", help="another: its BLEU less the first's is the difference")
    add("--seeds", metavar="1-3,7", help="only these (default: all that both rows have)")


def _benchmark(command: argparse.ArgumentParser) -> None:
    add = command.add_argument
    add("--trials", type=int, default=3, metavar="N", help="runs of the table")
    add("--minutes", type=float, default=1.0, metavar="M", help="of training of each run")
    add(
        "--storage",
        type=_storage,
        metavar="URL",
        help="database of the fleet (default: OPTUNA_STORAGE, or a file)",
    )
    output = Path("runs") / "benchmark-fleet.json"
    add("--output", type=Path, default=output, metavar="FILE", help="the figures as JSON")


_STORAGE = "--storage postgresql://me@host/table3"
_EXAMPLES = (
    "run table3 --scale quick",
    "status runs/table3-quick --watch",
    "report runs/table3-quick",
)
_COMMANDS = {
    "list": Command(commands.list_tables, _nothing, ("list",)),
    "plan": Command(
        commands.plan,
        _plan,
        (
            "plan table3 --scale small --seeds 1-3",
            "plan table3 --scale paper --device H100 --devices 8",
        ),
    ),
    "run": Command(
        commands.run,
        _run,
        (
            "run table3 --scale quick",
            "run table3 --scale small --seeds 1-3 --rows base,A-h1 --workers 2",
            "run my_table.py --scale quick",
        ),
    ),
    "worker": Command(commands.worker, _worker, (f"worker runs/table3-paper {_STORAGE}",)),
    "search": Command(
        commands.search,
        _search,
        ("search base_lr --scale small --trials 40", "search my_space.py --scale quick --trials 9"),
    ),
    "status": Command(
        commands.status,
        _status,
        ("status runs/table3-small --watch", f"status runs/table3-paper {_STORAGE}"),
    ),
    "report": Command(commands.report, _directory, ("report runs/table3-small",)),
    "collect": Command(
        commands.collect, _collect, ("collect runs/table3-small --into results/table3-small",)
    ),
    "compare": Command(
        commands.compare, _compare, ("compare runs/table3-small base A-h1 --seeds 1-3",)
    ),
    "benchmark": Command(commands.benchmark, _benchmark, ("benchmark --trials 3 --minutes 1",)),
}


def parser() -> Parser:
    """The parser of ``python -m ablations``."""
    return make_parser("python -m ablations", __doc__, _EXAMPLES, _COMMANDS)


def main() -> int:
    """Carry out the command line; the exit code is 1 where a run crashed, 2 for bad input."""
    return run_command_line(parser())


if __name__ == "__main__":
    sys.exit(main())
