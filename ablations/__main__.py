"""Train a table of runs, and report it beside the paper's figures."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable
from pathlib import Path

from ablations import commands
from experiments.command_line import Parser, run_command_line


def _table(command: argparse.ArgumentParser) -> None:
    """Which runs of which table."""
    add = command.add_argument
    add("table", metavar="TABLE", help="a name that list prints, or a file such as my_table.py")
    add("--scale", required=True, metavar="quick|small|medium|paper", help="what the sizes become")
    add("--seeds", default="1", metavar="1,2,3", help="each row is trained once with each")
    add("--rows", metavar="base,A-h1,...", help="only these; all without it")
    add("--directory", type=Path, metavar="DIR", help="of the runs, else runs/TABLE-SCALE")


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


def _worker_options(command: argparse.ArgumentParser) -> None:
    """What every worker takes."""
    add = command.add_argument
    add(
        "--storage",
        type=_storage,
        metavar="URL",
        help="database that all workers share, such as postgresql://user@host/name; else "
        "OPTUNA_STORAGE, else a file in the directory, for one machine",
    )
    add("--workers", type=int, metavar="N", help="runs at a time; else one per GPU, or per core")
    add("--devices-per-trial", type=int, default=1, metavar="K", help="GPUs of one run")
    add("--trials-per-device", type=int, default=1, metavar="K", help="runs that share a GPU")
    add("--accumulate", type=int, default=1, metavar="K", help="parts of a step, to save memory")
    add("--retries", type=int, default=2, metavar="N", help="after an exception; 2 without it")


def _arithmetic(command: argparse.ArgumentParser) -> None:
    """How all runs of a directory are worked out; fixed by its first call."""
    add = command.add_argument
    add(
        "--precision",
        choices=("bf16", "fp32"),
        help="of products; else that of the runs there are, else bf16 where this machine has it",
    )
    add(
        "--threads",
        type=int,
        metavar="N",
        help="CPU threads of each run; else as the runs there are, else 1",
    )


def _plan(command: argparse.ArgumentParser) -> None:
    """Estimate what a table will cost, and say by what: a device's nominal peak, the runs that
    the table's directory has, or some steps on this machine.
    """
    _table(command)
    add = command.add_argument
    add("--devices", type=int, default=1, metavar="N", help="GPUs, or cores where there is none")
    add("--devices-per-trial", type=int, default=1, metavar="K", help="that share one run")
    add("--device", metavar="H100", help="by what this one can do; needs none here")
    add("--json", action="store_true", help="one object, see ablations/costs/lines.py")


def _run(command: argparse.ArgumentParser) -> None:
    """Train what a table still lacks, then write and print its report. Interrupted and called
    again, it goes on where it was.
    """
    _table(command)
    add = command.add_argument
    add("--retry-failed", action="store_true", help="take up again what was given up")
    add(
        "--from",
        dest="earlier",
        type=Path,
        metavar="DIR",
        help="add to the finished runs of this directory, such as a committed result, by copies",
    )
    _arithmetic(command)
    _worker_options(command)


def _search(command: argparse.ArgumentParser) -> None:
    """Search a space of settings for the lowest perplexity on the validation set; poor trials are
    ended early. Interrupted and called again, it goes on where it was; with more trials it goes
    further.
    """
    add = command.add_argument
    add("space", metavar="SPACE", help="a name that list prints, or a file such as my_space.py")
    add("--scale", required=True, metavar="quick|small|medium|paper", help="what the sizes become")
    add("--trials", type=int, required=True, metavar="N", help="how many in all")
    add("--seed", type=int, default=1, metavar="N", help="of all trials, and of what is drawn")
    add("--directory", type=Path, metavar="DIR", help="else runs/SPACE-SCALE")
    add("--retry-failed", action="store_true", help="take up again what was given up")
    _arithmetic(command)
    _worker_options(command)


def _worker(command: argparse.ArgumentParser) -> None:
    """Work on the runs of a directory beside all others who do, until none is left. Workers may
    come and go; what one leaves unfinished another goes on with.
    """
    _directory(command)
    _worker_options(command)


def _status(command: argparse.ArgumentParser) -> None:
    """Print how far a table or a search has come, who works on it, and what failed. Where the
    directory is not seen from here, its name is that of a study in the storage.
    """
    _directory(command)
    add = command.add_argument
    add(
        "--storage",
        type=_storage,
        metavar="URL",
        help="where no such directory is seen; else OPTUNA_STORAGE",
    )
    add("--watch", action="store_true", help="again and again until all is done")
    add("--json", action="store_true", help="one object, see ablations/status/objects.py")


def _collect(command: argparse.ArgumentParser) -> None:
    """Copy the finished runs of a table, without checkpoints, to a directory that may hold others
    of the same table and scale: what `report` draws and `run --from` adds to.
    """
    _directory(command)
    command.add_argument(
        "--into", dest="target", type=Path, required=True, metavar="DIR", help="is made if missing"
    )


def _compare(command: argparse.ArgumentParser) -> None:
    """Compare the BLEU of two rows on the validation set: for each seed that both have finished
    by sacreBLEU's paired bootstrap over the lines, and over the seeds by the 95 % interval of
    their differences.
    """
    _directory(command)
    add = command.add_argument
    add("first", metavar="ROW", help="a row that report shows")
    add("second", metavar="ROW", help="another: its BLEU less the first's is the difference")
    add("--seeds", metavar="1,2,3", help="only these; all that both rows have without it")


def _benchmark(command: argparse.ArgumentParser) -> None:
    """Measure what the fleet itself takes of the time of a table of short runs: a worker with one
    place, beside one process that does the same runs without it.
    """
    add = command.add_argument
    add("--trials", type=int, default=3, metavar="N", help="runs of the table, else 3")
    add("--minutes", type=float, default=1.0, metavar="M", help="that each trains, else 1")
    add(
        "--storage",
        type=_storage,
        metavar="URL",
        help="of the fleet; else OPTUNA_STORAGE, else a file",
    )
    output = Path("runs") / "benchmark-fleet.json"
    add("--output", type=Path, default=output, metavar="FILE", help=f"as JSON, else {output}")


def _nothing(command: argparse.ArgumentParser) -> None:
    del command


# Each with what it does, whose first line is its help, and with what it takes.
_COMMANDS: dict[str, tuple[Callable[..., int], Callable[[argparse.ArgumentParser], None]]] = {
    "list": (commands.list_tables, _nothing),
    "plan": (commands.plan, _plan),
    "run": (commands.run, _run),
    "worker": (commands.worker, _worker),
    "search": (commands.search, _search),
    "status": (commands.status, _status),
    "report": (commands.report, _directory),
    "collect": (commands.collect, _collect),
    "compare": (commands.compare, _compare),
    "benchmark": (commands.benchmark, _benchmark),
}


def main() -> int:
    """Carry out the command line; the exit code is 1 where a run crashed, 2 for bad input."""
    parser = Parser(prog="python -m ablations", description=__doc__)
    subparsers = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, (function, add_arguments) in _COMMANDS.items():
        command = subparsers.add_parser(
            name, help=function.__doc__, description=add_arguments.__doc__ or function.__doc__
        )
        add_arguments(command)
        command.set_defaults(command=function)
    return run_command_line(parser)


if __name__ == "__main__":
    sys.exit(main())
