"""The commands of ``python -m ablations``."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from ablations.folder import LayersFolder, SearchFolder, TableFolder, open_folder, open_runs
from ablations.report.layout import open_page, print_page
from ablations.runs.lock import Shard
from ablations.runs.options import AT_LEAST_ONE, Options, Places
from ablations.search.search import SearchOptions
from ablations.search.space import SPACES
from ablations.status.view import show_status
from ablations.tables import table1 as paper
from ablations.tables.find import LAYERS_TABLE, TABLES, Selection, load_table, parse_rows
from ablations.tables.scales import SCALES
from experiments.command_line import FLAT, Program, Variants, print_checks
from transformer.errors import InputError
from transformer.files import to_json
from transformer.terminal import say
from transformer.variant import trust

PROGRAM = Program(
    "ablations",
    "Train a table of runs, and report it beside the paper's numbers.",
    "run table3 --scale quick",
    "status runs/table3-quick --watch",
    "report runs/table3-quick",
)
command = PROGRAM.command

TableName = Annotated[str, Parameter(help="a table that list prints, or a file like my_table.py")]
Text = Annotated[
    str | None,
    Parameter(help="your own text, as files:FOLDER [default: the scale's corpus]"),
]
Directory = Annotated[Path, Parameter(help="directory of a table or a search")]


@command("list")
def list_() -> None:
    """Print the tables with their rows, the search spaces, and the scales."""
    say(f"{LAYERS_TABLE}: {paper.TITLE}, measured; without a scale")
    say(f"    rows: {', '.join(paper.NAMES)}")
    for name in TABLES:
        table = load_table(name)
        say(f"{name}: {table.title}")
        say(f"    rows: {', '.join(row.name for row in table.run_rows)}")
        if table.scales:
            scales = (f"{scale.name} ({scale.corpus.name})" for scale in table.scales)
            say(f"    scales of its own: {', '.join(scales)}")
    for space in SPACES.values():
        say(f"search {space.name}: {space.title}")
        say(f"    varies: {', '.join(each.name for each in space.parameters)}")
    say("scales:")
    for scale in SCALES:
        say(f"    {scale.name}: {scale.corpus.name}, {scale.division}, {scale.max_steps:,} steps")


@command(
    "plan table3 --scale small --seeds 1-3",
    "plan table3 --scale paper --device H100 --devices 8",
)
def plan(
    table: TableName,
    text: Text = None,
    /,
    *,
    selection: Annotated[Selection, FLAT] = Selection(),
    device: str | None = None,
    devices: Annotated[int | None, AT_LEAST_ONE] = None,
    places: Annotated[Places, FLAT] = Places(),
    json: bool = False,
) -> None:
    """Print what a table will cost: parameters, FLOPs, hours, disk.

    The hours are estimated from the nominal peak of --device if you give it, else from the finished
    runs in the table's directory, else from a few steps that are timed on this machine.

    Args:
        device: GPU to estimate for, such as H100; it need not be here [default: this machine's]
        devices: number of GPUs or cores [default: those here, or those of one run with --device]
        json: print one JSON object; ablations/costs/estimate.py explains its fields
    """
    from ablations.costs.describe import describe_cost
    from ablations.costs.estimate import plan_table

    estimate = plan_table(
        table, selection, device=device, devices=devices, places=places, text=text
    )
    if json:
        print(to_json(asdict(estimate), indent=None), end="")
    else:
        say(*describe_cost(estimate))


@command(
    "run table3 --scale quick",
    "run table3 --scale small --seeds 1-3 --rows base,A-h1 --workers 2",
    "run table3 --scale paper --seeds 1-3 --ray auto",
    "run my_table.py --scale quick",
    "run table3 files:my_corpus --seeds 1-3",
    "run table1 --quick",
)
def run(
    table: TableName,
    text: Text = None,
    /,
    *,
    selection: Annotated[Selection, FLAT] = Selection(),
    device: Literal["cpu", "cuda"] | None = None,
    quick: bool = False,
    earlier: Annotated[Path | None, Parameter(name="--from")] = None,
    again: str | None = None,
    shard: str = "1/1",
    options: Annotated[Options, FLAT] = Options(),
) -> int:
    """Train a table's missing runs, then write and print its report.

    If it is interrupted, the same command continues where it stopped. The runs and the report are
    in the table's directory; you can add seeds and rows later. table1 trains nothing: it measures
    layers, and takes only --directory, --device and --quick; without --quick it adds the larger
    sizes.

    Args:
        device: for table1, the device to measure on [default: a GPU if there is one]
        quick: for table1, measure only the sizes that take a minute
        earlier: directory to copy finished runs from where they equal runs of this table, such as
            a committed result [default: none]
        again: rows to train again if they changed after they were trained, such as base,A-h1
            [default: none]
        shard: share of the runs for one task of a job array, such as 2/8: every eighth run from
            the second on
    """
    if table == LAYERS_TABLE:
        given = replace(selection, directory=None), text, earlier, again, shard, options
        if given != (Selection(), None, None, None, "1/1", Options()):
            raise InputError(f"{table} takes only --directory, --device and --quick")
        from ablations.table1.measure import run_layers

        return run_layers(selection.directory, device, quick=quick)
    if device is not None or quick:
        raise InputError("--device and --quick are for table1: other tables use the GPUs they find")
    from ablations.run import run_table

    options = replace(options, shard=Shard.parse(shard))
    return run_table(table, selection, earlier, again, options, text)


@command(
    "search base_lr --scale small --trials 40 --confirm 3",
    "search my_space.py --scale quick --trials 40 --pruner none",
    "search base_lr files:my_corpus --trials 40",
)
def search(
    space: str,
    text: Text = None,
    /,
    *,
    asked: Annotated[SearchOptions, FLAT],
    confirm: Annotated[int | None, AT_LEAST_ONE] = None,
    directory: Path | None = None,
    options: Annotated[Options, FLAT] = Options(),
) -> int:
    """Search a space of settings for the lowest perplexity, then write and print its report.

    The perplexity is that of the validation set; poor trials are ended early. If it is interrupted,
    the same command continues where it stopped; a larger --trials adds trials.

    Args:
        space: a search space that list prints, or a file like my_space.py
        confirm: number of best trials to train again, with the base, on three other seeds
            [default: none]
        directory: directory for the trials [default: runs/SPACE-SCALE]
    """
    from ablations.run import run_search

    return run_search(
        space, asked, confirm=confirm, directory=directory, options=options, text=text
    )


@command(
    "try my_idea.py --scale quick",
    "try my_idea.py:GeluTransformer --json",
    "try transformer.variants.positions:RotaryTransformer",
    "try --adopt 3",
)
def try_(
    what: str,
    /,
    *,
    scale: str = "small",
    directory: Path | None = None,
    adopt: bool = False,
    minutes: Annotated[float | None, Parameter(validator=Number(gt=0))] = None,
    workers: Annotated[int | None, AT_LEAST_ONE] = None,
    json: bool = False,
) -> int:
    """Train a change and test whether it is better than Table 3's base; see docs/try.md.

    The verdict is better, worse or no difference. If time runs out first there is no verdict, and
    the same command continues. A proposal that has a verdict is not trained again: the verdict is
    printed. Each proposal is a line of ledger.jsonl in the directory.

    Exit codes: 0 with a verdict, 1 without, 2 for bad input, 130 or 143 if a signal stopped it.

    Args:
        what: a model or method, as FILE.py:Class or module:Class; or a FILE.py that has just one,
            or a table with one row besides its base; with --adopt, a proposal's number or name
        scale: small takes about half an hour on two cores, quick three minutes
        directory: directory for the proposals and their base [default: runs/try-SCALE]
        adopt: train a proposal that is better on ten new seeds, and make it the base
        minutes: minutes of training before it ends without a verdict [default: 30, at quick 3]
        workers: number of runs at a time [default: one per GPU, or one per core without a GPU]
        json: print one JSON object; docs/try.md explains its fields
    """
    from ablations.proposals.command import carry_out

    options = Options(workers=workers, log="none")
    return carry_out(
        what, scale, directory, minutes=minutes, options=options, adopt=adopt, as_json=json
    )


@command("status runs/table3-small --watch")
def status(
    directory: Directory, /, *, variant: Variants = (), watch: bool = False, json: bool = False
) -> int:
    """Print how far a table or a search is, where its runs are, and what failed.

    Args:
        watch: keep showing it until all runs have ended
        json: print one JSON object; ablations/status/status.py explains its fields
    """
    trust(*variant)
    return show_status(directory, watch=watch, as_json=json)


@command("dashboard", "dashboard runs/table3-small runs/base_lr-small --port 8888 --open")
def dashboard(
    *directories: Annotated[Path, Parameter(name="DIRECTORY")],
    port: Annotated[int, Parameter(validator=Number(gte=0, lte=65_535))] = 8080,
    host: str = "127.0.0.1",
    open: bool = False,
) -> int:
    """Show tables and searches live in a browser, until Ctrl-C.

    Only this machine can reach it unless you give another address. It only reads files, so it does
    not disturb a run.

    Args:
        directories: directories of tables or searches, or folders of them [default: all in runs/]
        port: port to listen on; if it is in use, the next free one
        host: address to listen on; 0.0.0.0 shows the page to the network
        open: open it in a browser
    """
    from ablations.dashboard.server import serve

    if not host:  # which would be every address
        raise InputError("--host is empty: name an address, or leave it out")
    return serve(directories, host=host, port=port, open_browser=open)


@command("report runs/table3-small --open")
def report(
    directory: Directory,
    /,
    *,
    rows: str | None = None,
    without: str | None = None,
    checklist: bool = False,
    variant: Variants = (),
    open: bool = False,
) -> None:
    """Write and print the report of a table, a search or Table 1, finished or not.

    The report is one HTML file. Next to it are the same text as Markdown, its plots as SVG and PNG
    and, for a table, LaTeX (table.tex) and CSV (results.csv).

    Args:
        rows: the only rows of a table to report, such as base,A-h1 [default: all]
        without: rows to leave out, such as one that diverged [default: none]
        checklist: print only the answers to reproducibility checklists, as Markdown
        open: open it in a browser
    """
    trust(*variant)
    folder = open_folder(directory)
    if rows is not None or without is not None:
        folder = _narrowed(folder, rows, without)
    if checklist:
        print(_checklist(folder))
        return
    print_page(_write_report(folder), directory)
    if open:
        open_page(directory)


def _checklist(folder: TableFolder | SearchFolder | LayersFolder) -> str:
    from ablations.report import checklist

    if isinstance(folder, LayersFolder):
        raise InputError(f"{folder.path} has measured layers: --checklist is for trained models")
    return checklist.checklist(folder)


def _narrowed(
    folder: TableFolder | SearchFolder | LayersFolder, rows: str | None, without: str | None
) -> TableFolder:
    if not isinstance(folder, TableFolder):
        raise InputError(f"{folder.path} has no rows: leave out --rows and --without")
    known = [row.name for row in folder.plan.rows]
    kept = known if rows is None else parse_rows(rows, known)
    dropped = [] if without is None else parse_rows(without, kept)
    if len(dropped) == len(kept):
        raise InputError("no row is left: name fewer in --without")
    return folder.only({*kept} - {*dropped})


def _write_report(folder: TableFolder | SearchFolder | LayersFolder) -> str:
    match folder:
        case LayersFolder():
            from ablations.table1.report import write_layers_report

            return write_layers_report(folder)
        case SearchFolder():
            from ablations.report.search import write_search_report

            return write_search_report(folder)
        case TableFolder():
            from ablations.report.report import write_report

            return write_report(folder)


@command("compare runs/table3-small base A-h1 --seeds 1-3")
def compare(directory: Directory, first: str, second: str, /, *, seeds: str | None = None) -> None:
    """Test whether two rows of a table differ by more than chance.

    It compares BLEU on the validation set: for each seed by sacreBLEU's approximate randomisation
    over lines, and over the seeds by the 95 % confidence interval of their differences.

    Args:
        first: the first row, as report names it
        second: the second row; the difference is its BLEU minus the first's
        seeds: seeds to compare, such as 1-3,7 [default: all that both rows have finished]
    """
    from ablations.report.compare import compare_rows

    for line in compare_rows(TableFolder(directory), first, second, seeds):
        say(line)


@command("confirm experiments/results/table3-small --row A-h4 --seeds 11-13")
def confirm(
    directory: Directory,
    /,
    *,
    row: str,
    seeds: str,
    into: Path | None = None,
    variant: Variants = (),
    options: Annotated[Options, FLAT] = Options(),
) -> int:
    """Train a row of a finished table again, and compare the new runs with the table's.

    For each score it prints the difference with its 95 % confidence interval, from the spread of
    the table's runs, and the smallest difference that this many seeds would show. If the table has
    one of the seeds too, both runs are compared digit by digit.

    Args:
        row: the row to train, as report names it
        seeds: seeds to train, such as 11-13, preferably not the table's own
        into: directory for the new runs [default: runs/confirm-TABLE-SCALE]
    """
    from ablations.run import run_confirmation

    trust(*variant)
    return run_confirmation(directory, row, seeds, into, options)


@command("wandb runs/table3-small --entity my-team")
def wandb(directory: Directory, /, *, entity: str | None = None, project: str | None = None) -> int:
    """Push runs that were tracked offline to W&B, and make a workspace that shows them.

    It pushes the runs, then the table with its plots, then saves a view of results and curves and
    prints its address. What was pushed before is skipped. You need an account: run wandb login, or
    set WANDB_API_KEY.

    Args:
        entity: W&B user or team [default: WANDB_ENTITY, or the account's]
        project: W&B project [default: WANDB_PROJECT, or ours]
    """
    from ablations.tracking.push import push

    return push(directory, entity, project)


@command("verify results/table3-small")
def verify(directory: Directory, /) -> None:
    """Check every file of a table's or a search's finished runs against its sha256."""
    print_checks(str(directory), open_runs(directory).verify())


@command("collect runs/table3-small --into results/table3-small")
def collect(directory: Directory, /, *, into: Path) -> None:
    """Add a table's or a search's ended runs to a directory of results, and write its report.

    There each run is a line of runs.jsonl: its settings, result, validation curve and samples, and
    the sha256 of each of its files. Training curves and translations are in one archive next to it;
    checkpoints and logs are left out. Other runs of the same table or search that are there already
    are kept. All commands read such a directory, and run --from continues it in another one.

    Args:
        into: directory to add the runs to; it is made if it is missing
    """
    folder = open_folder(directory)
    added = folder.collect(into)
    _write_report(open_folder(into))
    what = "measurements" if isinstance(folder, LayersFolder) else f"{len(added)} runs"
    print(f"{what} added to {into}")
