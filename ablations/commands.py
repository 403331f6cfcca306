"""What each command of ``python -m ablations`` does; the parser is in ``__main__``."""

from __future__ import annotations

from json import dumps
from pathlib import Path
from typing import Any

from transformer.config import Precision

# Imports of what a single command needs stand in that command: --help is to answer at once.


def list_tables() -> int:
    """Print the tables with their rows, the search spaces, and the scales."""
    from ablations.search.spaces import SPACES
    from ablations.tables.find import TABLES, load_table
    from ablations.tables.scales import SCALES

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
    """Train what a table still lacks, then write and print its report.

    Interrupted and called again, it continues where it was. The report and the runs are in the
    table's directory; more seeds or rows may be asked for later.
    """
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
    """Work on the runs of a directory, together with other workers, until none is left.

    The directory and the storage are those of a run or search that was started on this machine or
    another. Workers may come and go; what one leaves unfinished another continues.
    """
    from ablations.run import Options, work_in

    return work_in(directory, Options(**options))


def plan(json: bool, **words: Any) -> int:
    """Print what a table will cost: hours, FLOPs, memory, disk.

    The hours are estimated from the nominal peak of the --device, or from the runs that the
    table's directory has, or else from some steps that are measured on this machine.
    """
    from ablations.costs.estimate import describe, plan_table, to_json

    estimate = plan_table(**words)
    print(dumps(to_json(estimate), ensure_ascii=False) if json else "\n".join(describe(estimate)))
    return 0


def status(directory: Path, storage: str | None, watch: bool, json: bool) -> int:
    """Print how far a table or a search has come, who works on it, and what failed.

    Where the directory is not seen from this machine, its name is that of a study in the storage.
    """
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
    """Search a space of settings for the lowest perplexity, then write and print its report.

    The perplexity is that of the validation set; poor trials are ended early. Interrupted and
    called again, it continues where it was; with more trials it goes further.
    """
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
    """Write and print the report of a table or a search, finished or not."""
    from ablations.files import SEARCH_FILE
    from ablations.report.page import print_page

    if (directory / SEARCH_FILE).is_file():
        from ablations.search.search_report import write_search_report as write
    else:
        from ablations.report.report import write_report as write

    print_page(write(directory), directory)
    return 0


def collect(directory: Path, target: Path) -> int:
    """Copy the finished runs of a table, without checkpoints, to another directory.

    That one may hold other runs of the same table and scale; ``report`` draws it and ``run --from``
    adds to it.
    """
    from ablations.tables.collect import collect as copy

    copied = copy(directory, target)
    print(f"{len(copied)} finished runs copied to {target}")
    return 0


def compare(directory: Path, first: str, second: str, seeds: str | None) -> int:
    """Test whether two rows of a table differ by more than chance.

    BLEU on the validation set is compared: for each seed that both rows have finished, by
    sacreBLEU's paired bootstrap over the lines, and over the seeds, by the 95 % interval of their
    differences.
    """
    from ablations.report.compare import compare_rows

    for line in compare_rows(directory, first, second, seeds):
        print(line, flush=True)
    return 0


def benchmark(trials: int, minutes: float, storage: str | None, output: Path) -> int:
    """Measure how much time a worker itself adds to a table of short runs.

    A worker with one slot carries out the runs, then one process does the same without a worker.
    """
    from ablations.benchmark import measure_overhead

    return measure_overhead(trials, minutes, storage, output)
