"""What each command of ``python -m ablations`` does; the parser is in ``__main__``."""

from __future__ import annotations

from json import dumps
from pathlib import Path
from typing import Any

from transformer.config import Precision

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
    earlier: Path | None,
    precision: Precision | None,
    threads: int | None,
    **options: Any,
) -> int:
    """train what a table still lacks, then write and print its report"""
    from ablations.run import Options, run_table

    return run_table(
        table,
        scale,
        seeds=seeds,
        rows=rows,
        directory=directory,
        retry_failed=retry_failed,
        earlier=earlier,
        precision=precision,
        threads=threads,
        options=Options(**options),
    )


def worker(directory: Path, **options: Any) -> int:
    """help with what others have begun in a directory, from this machine or another"""
    from ablations.run import Options, work_in

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
    precision: Precision | None,
    threads: int | None,
    **options: Any,
) -> int:
    """search a space of settings for the lowest perplexity, then write and print its report"""
    from ablations.run import Options, run_search

    return run_search(
        space,
        scale,
        trials=trials,
        seed=seed,
        directory=directory,
        retry_failed=retry_failed,
        precision=precision,
        threads=threads,
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


def collect(directory: Path, target: Path) -> int:
    """copy the finished runs of a table, without checkpoints, to another directory"""
    from ablations.collect import collect as copy

    copied = copy(directory, target)
    print(f"{len(copied)} finished runs copied to {target}")
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
