"""Train a table of runs, and report it beside the paper's figures."""

from __future__ import annotations

import argparse
import sys
from json import dumps
from pathlib import Path
from typing import Any

from experiments.command_line import Parser, run_command_line

# Imports of what a single command needs stand in that command: --help is to answer at once.


def list_tables() -> int:
    """print the tables with their rows, and the scales"""
    from ablations.scales import SCALES
    from ablations.search.spaces import SPACES
    from ablations.tables import TABLES, load_table

    for name in TABLES:
        table = load_table(name)
        print(f"{name}: {table.title}")
        print(f"    rows: {', '.join(row.name for row in table.rows)}")
    for space in SPACES.values():
        print(f"search {space.name}: {space.title}")
        print(f"    varies: {', '.join(each.name for each in space.parameters)}")
    print("scales:")
    for scale in SCALES:
        print(
            f"    {scale.name}: {scale.corpus.name}, widths divided by {scale.divide_widths}, "
            f"N by {scale.divide_layers}, {scale.max_steps:,} steps"
        )
    return 0


def run(
    table: str,
    scale: str,
    seeds: str,
    rows: str | None,
    directory: Path | None,
    retry_failed: bool,
    **options: Any,
) -> int:
    """train what a table still lacks, then write and print its report"""
    from ablations.fleet.run import Options, run_table

    return run_table(
        table,
        scale,
        seeds=seeds,
        rows=rows,
        directory=directory,
        retry_failed=retry_failed,
        options=Options(**options),
    )


def worker(directory: Path, **options: Any) -> int:
    """help with what others have begun in a directory, from this machine or another"""
    from ablations.fleet.run import Options, work_in

    return work_in(directory, Options(**options))


def plan(json: bool, **words: Any) -> int:
    """print what a table will cost: hours, FLOPs, memory, disk"""
    from ablations.costs.lines import describe, to_json
    from ablations.costs.planning import plan_table

    estimate = plan_table(**words)
    print(dumps(to_json(estimate), ensure_ascii=False) if json else "\n".join(describe(estimate)))
    return 0


def status(directory: Path, storage: str | None, watch: bool, json: bool) -> int:
    """print how far a table or a search has come, and who works on it"""
    from ablations.status.command import show_status

    return show_status(directory, storage=storage, watch=watch, as_json=json)


def search(
    space: str,
    scale: str,
    trials: int,
    seed: int,
    directory: Path | None,
    retry_failed: bool,
    **options: Any,
) -> int:
    """search a space of settings for the lowest perplexity, then write and print its report"""
    from ablations.fleet.run import Options, run_search

    return run_search(
        space,
        scale,
        trials=trials,
        seed=seed,
        directory=directory,
        retry_failed=retry_failed,
        options=Options(**options),
    )


def report(directory: Path) -> int:
    """write and print the report of a table or a search, finished or not"""
    from ablations.search.search import is_search

    if is_search(directory):
        from ablations.search.report import announce_search, write_search_report

        announce_search(write_search_report(directory), directory)
        return 0
    from ablations.reporting.report import announce, write_report

    announce(write_report(directory), directory)
    return 0


def compare(directory: Path, first: str, second: str, seeds: str | None) -> int:
    """tell whether two rows of a table differ by more than chance"""
    from ablations.reporting.compare import compare_rows

    for line in compare_rows(directory, first, second, seeds):
        print(line, flush=True)
    return 0


def benchmark(trials: int, minutes: float, storage: str | None, output: Path) -> int:
    """measure what the fleet itself takes of the time of a table of short runs"""
    from ablations.benchmark.overhead import measure_overhead

    return measure_overhead(trials, minutes, storage, output)


def _add_options(command: argparse.ArgumentParser) -> None:
    """What every worker takes."""
    add = command.add_argument
    add(
        "--storage",
        metavar="URL",
        help="database that all workers share, such as postgresql://user@host/name; else "
        "OPTUNA_STORAGE, else a file in the directory, for one machine",
    )
    add("--workers", type=int, metavar="N", help="runs at a time; else one per GPU, or per core")
    add("--devices-per-trial", type=int, default=1, metavar="K", help="GPUs of one run")
    add("--trials-per-device", type=int, default=1, metavar="K", help="runs that share a GPU")
    add("--retries", type=int, default=2, metavar="N", help="after an exception; 2 without it")


def main() -> int:
    """Carry out the command line; the exit code is 1 where a run crashed, 2 for bad input."""
    parser = Parser(prog="python -m ablations", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    command = commands.add_parser("list", help=list_tables.__doc__)
    command.set_defaults(command=list_tables)

    command = commands.add_parser(
        "plan",
        help=plan.__doc__,
        description="Estimate what a table will cost, and say by what: a device's nominal peak, "
        "the runs that the table's directory has, or some steps on this machine.",
    )
    add = command.add_argument
    add("table", metavar="TABLE", help="a name that list prints, or a file such as my_table.py")
    add("--scale", required=True, metavar="quick|small|paper", help="what the sizes become")
    add("--seeds", default="1", metavar="1,2,3", help="each row is trained once with each")
    add("--rows", metavar="base,A-h1,...", help="only these; all without it")
    add("--devices", type=int, default=1, metavar="N", help="GPUs, or cores where there is none")
    add("--devices-per-trial", type=int, default=1, metavar="K", help="that share one run")
    add("--device", metavar="H100", help="by what this one can do; needs none here")
    add("--directory", type=Path, metavar="DIR", help="of the runs, else runs/TABLE-SCALE")
    add("--json", action="store_true", help="one object, see ablations/costs/lines.py")
    command.set_defaults(command=plan)

    command = commands.add_parser(
        "run",
        help=run.__doc__,
        description="Train what a table still lacks, then write and print its report. "
        "Interrupted and called again, it goes on where it was.",
    )
    add = command.add_argument
    add("table", metavar="TABLE", help="a name that list prints, or a file such as my_table.py")
    add("--scale", required=True, metavar="quick|small|paper", help="what the sizes become")
    add("--seeds", default="1", metavar="1,2,3", help="each row is trained once with each")
    add("--rows", metavar="base,A-h1,...", help="only these; all without it")
    add("--directory", type=Path, metavar="DIR", help="else runs/TABLE-SCALE")
    add("--retry-failed", action="store_true", help="take up again what was given up")
    _add_options(command)
    command.set_defaults(command=run)

    command = commands.add_parser(
        "search",
        help=search.__doc__,
        description="Search a space of settings for the lowest perplexity on the validation set; "
        "poor trials are ended early. Interrupted and called again, it goes on where it was; with "
        "more trials it goes further.",
    )
    add = command.add_argument
    add("space", metavar="SPACE", help="a name that list prints, or a file such as my_space.py")
    add("--scale", required=True, metavar="quick|small|paper", help="what the sizes become")
    add("--trials", type=int, required=True, metavar="N", help="how many in all")
    add("--seed", type=int, default=1, metavar="N", help="of all trials, and of what is drawn")
    add("--directory", type=Path, metavar="DIR", help="else runs/SPACE-SCALE")
    add("--retry-failed", action="store_true", help="take up again what was given up")
    _add_options(command)
    command.set_defaults(command=search)

    command = commands.add_parser(
        "worker",
        help=worker.__doc__,
        description="Work on the runs of a directory beside all others who do, until none is "
        "left. Workers may come and go; what one leaves unfinished another goes on with.",
    )
    command.add_argument("directory", type=Path, metavar="DIRECTORY", help="of a table's runs")
    _add_options(command)
    command.set_defaults(command=worker)

    command = commands.add_parser(
        "status",
        help=status.__doc__,
        description="Print how far a table or a search has come, who works on it, and what failed.",
    )
    add = command.add_argument
    add("directory", type=Path, metavar="DIRECTORY", help="of the runs, seen from here or not")
    add("--storage", metavar="URL", help="where no such directory is seen; else OPTUNA_STORAGE")
    add("--watch", action="store_true", help="again and again until all is done")
    add("--json", action="store_true", help="one object, see ablations/status/objects.py")
    command.set_defaults(command=status)

    command = commands.add_parser("report", help=report.__doc__)
    command.add_argument("directory", type=Path, metavar="DIRECTORY", help="of a table's runs")
    command.set_defaults(command=report)

    command = commands.add_parser(
        "compare",
        help=compare.__doc__,
        description="Compare the BLEU of two rows on the validation set: for each seed that both "
        "have finished by sacreBLEU's paired bootstrap over the lines, and over the seeds by the "
        "95 % interval of their differences.",
    )
    add = command.add_argument
    add("directory", type=Path, metavar="DIRECTORY", help="of a table's runs")
    add("first", metavar="ROW", help="a row that report shows")
    add("second", metavar="ROW", help="another: its BLEU less the first's is the difference")
    add("--seeds", metavar="1,2,3", help="only these; all that both rows have without it")
    command.set_defaults(command=compare)

    command = commands.add_parser(
        "benchmark",
        help=benchmark.__doc__,
        description="Measure what the fleet itself takes of the time of a table of short runs: a "
        "worker with one place, beside one process that does the same runs without it.",
    )
    add = command.add_argument
    add("--trials", type=int, default=3, metavar="N", help="runs of the table, else 3")
    add("--minutes", type=float, default=1.0, metavar="M", help="that each trains, else 1")
    add("--storage", metavar="URL", help="of the fleet; else OPTUNA_STORAGE, else a file")
    output = Path("runs") / "benchmark-fleet.json"
    add("--output", type=Path, default=output, metavar="FILE", help=f"as JSON, else {output}")
    command.set_defaults(command=benchmark)
    return run_command_line(parser)


if __name__ == "__main__":
    sys.exit(main())
