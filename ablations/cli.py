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
    "Train a table of runs, and report it next to the paper's figures.",
    "run table3 --scale quick",
    "status runs/table3-quick --watch",
    "report runs/table3-quick",
)
command = PROGRAM.command

TableName = Annotated[str, Parameter(help="a name that list prints, or a file like my_table.py")]
Text = Annotated[
    str | None,
    Parameter(help="files:FOLDER, text of your own [default: the corpus of the scale]"),
]
Directory = Annotated[Path, Parameter(help="of a table's or a search's runs")]


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

    The hours are estimated from the nominal peak of the --device, or from the runs that the
    table's directory has, or else from a few steps that are measured on this machine.

    Args:
        device: a GPU that need not be here, such as H100 [default: what this machine has]
        devices: GPUs, or cores [default: those of this machine, or of one run with --device]
        json: one object, see ablations/costs/estimate.py
    """
    from ablations.costs.estimate import describe_cost, plan_table

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
    """Train the runs that a table lacks, then write and print its report.

    Interrupted and called again, it continues where it was. The report and the runs are in the
    table's directory; you can add seeds and rows later. table1 trains nothing: it measures layers,
    and takes --directory, --device and --quick alone; without --quick it adds the other sizes.

    Args:
        device: of table1 [default: a GPU if there is one]
        quick: of table1, the sizes that take a minute
        earlier: copy the finished runs of a directory that are equal to ones of this table, such as
            those of a committed result [default: none]
        again: such as base,A-h1: train these rows anew if they have changed since [default: none]
        shard: as in 2/8, every eighth run from the second on, for the tasks of an array
    """
    if table == LAYERS_TABLE:
        given = replace(selection, directory=None), text, earlier, again, shard, options
        if given != (Selection(), None, None, None, "1/1", Options()):
            raise InputError(f"{table} takes --directory, --device and --quick alone")
        from ablations.table1.measure import run_layers

        return run_layers(selection.directory, device, quick=quick)
    if device is not None or quick:
        raise InputError("--device and --quick are for table1: others take the GPUs that there are")
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

    The perplexity is that of the validation set; poor trials are ended early. Interrupted and
    called again, it continues where it was; with more trials it goes further.

    Args:
        space: a name that list prints, or a file like my_space.py
        confirm: then train the K best and the base with three other seeds [default: none]
        directory: of the runs [default: runs/SPACE-SCALE]
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
    """Train a change and say whether it is better than Table 3's base: docs/try.md.

    The verdict is better, worse, no difference, or no verdict if it is not finished in time; then
    the same command continues. A proposal that was tried before is not trained again: its verdict
    is printed. Each one is a line of ledger.jsonl in the directory.

    Exit codes: 0 with a verdict, 1 without, 2 for bad input, 130 or 143 if a signal stopped it.

    Args:
        what: FILE.py:Class or module:Class, a model or a method; FILE.py with one of these, or with
            a table of one row besides its base; with --adopt, the number or name of a proposal
        scale: small takes about half an hour on two cores, quick three minutes
        directory: of the proposals and their base [default: runs/try-SCALE]
        adopt: train a proposal that is better on ten fresh seeds, and make it the base
        minutes: of training, after which there is no verdict yet [default: 30, at quick 3]
        workers: runs at a time [default: one for each GPU, or for each core if there is no GPU]
        json: one object, see docs/try.md
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
        watch: show it again and again until all is done
        json: one object, see ablations/status/status.py
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

    Only this machine can reach it unless you name another address. It reads files and never writes
    one; a driver does not notice it.

    Args:
        directories: of a table or a search, or a folder of them [default: all in runs/]
        port: or the next free one
        host: 0.0.0.0 shows it to the network
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
    """Write and print the report of a table, a search or measured layers, finished or not.

    It is one HTML file; the same as Markdown, its figures as SVG and PNG and, of a table, LaTeX
    (table.tex) and CSV (results.csv) are next to it.

    Args:
        rows: such as base,A-h1: only these rows of a table [default: all]
        without: rows to leave out, such as one that diverged [default: none]
        checklist: only print answers to reproducibility checklists, as Markdown
        open: show it in a browser
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
        raise InputError(f"{folder.path} holds measured layers: --checklist is for trainings")
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

    BLEU on the validation set is compared: for each seed by sacreBLEU's approximate randomisation
    of the lines, and over the seeds by the 95 % interval of their differences.

    Args:
        first: a row that report shows
        second: another: the difference is its BLEU minus the first's
        seeds: such as 1-3,7: only these [default: all that both rows have finished]
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
    """Train a row of a finished table again, and compare it with the runs that are there.

    Printed is the difference in each score with its 95 % interval, by the spread of the table's
    runs, and the least difference that so many seeds would have shown. A seed that is there too is
    compared digit by digit.

    Args:
        row: a row that report shows
        seeds: such as 11-13, best other ones than those of the table
        into: directory of the new runs [default: runs/confirm-TABLE-SCALE]
    """
    from ablations.run import run_confirmation

    trust(*variant)
    return run_confirmation(directory, row, seeds, into, options)


@command("wandb runs/table3-small --entity my-team")
def wandb(directory: Directory, /, *, entity: str | None = None, project: str | None = None) -> int:
    """Push what was tracked offline to W&B, with a workspace to look at it.

    The runs of a table or a search, then the table and its figures, then a saved view of them and
    of curves, whose address is printed. What was pushed before is skipped. Needs an account:
    run wandb login, or set WANDB_API_KEY.

    Args:
        entity: user or team [default: WANDB_ENTITY, or the account's]
        project: its project [default: WANDB_PROJECT, or ours]
    """
    from ablations.tracking.push import push

    return push(directory, entity, project)


@command("verify results/table3-small")
def verify(directory: Directory, /) -> None:
    """Check every file of the finished runs of a table or a search against its sha256."""
    print_checks(str(directory), open_runs(directory).verify())


@command("collect runs/table3-small --into results/table3-small")
def collect(directory: Directory, /, *, into: Path) -> None:
    """Add what has ended of a table or a search to a directory of results, and write its report.

    There each run is a line of runs.jsonl: its settings, result, validation curve and samples, and
    the sha256 of each of its files. Training curves and translations are in one archive next to it;
    checkpoints and logs are left out. Other runs of the same table or search may be there already:
    those are kept. All commands read such a directory, and run --from continues it elsewhere.

    Args:
        into: directory to add them to, made if missing
    """
    folder = open_folder(directory)
    added = folder.collect(into)
    _write_report(open_folder(into))
    what = "measurements" if isinstance(folder, LayersFolder) else f"{len(added)} runs"
    print(f"{what} added to {into}")
