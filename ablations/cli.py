"""The commands of ``python -m ablations``, each below the declaration of its arguments."""

from __future__ import annotations

from dataclasses import asdict
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ablations.runs.lock import Shard
from experiments.command_line import LOG, VARIANT, Program, arg
from transformer.config import Precision
from transformer.errors import InputError

if TYPE_CHECKING:
    from ablations.search.search import Pruner, Sampler

PROGRAM = Program(
    "python -m ablations",
    "Train a table of runs, and report it next to the paper's figures.",
    examples=(
        "run table3 --scale quick",
        "status runs/table3-quick --watch",
        "report runs/table3-quick",
    ),
)
main = PROGRAM.run

_SCALE = arg(
    "--scale", required=True, metavar="SCALE", help="what the sizes become; list prints them"
)
_NAME = arg("table", metavar="TABLE", help="a name that list prints, or a file like my_table.py")
_CELLS = (
    arg("--seeds", default="1", metavar="1-3,7", help="each row is trained once with each"),
    arg("--rows", metavar="base,A-h1,...", help="only these (default: all)"),
    arg("--directory", type=Path, metavar="DIR", help="of the runs (default: runs/TABLE-SCALE)"),
)
_DIRECTORY = arg(
    "directory", type=Path, metavar="DIRECTORY", help="of a table's or a search's runs"
)
# How many runs there are at a time.
_PLACES = (
    arg(
        "--workers",
        type=int,
        metavar="N",
        help="runs at a time (default: one for each GPU, or for each core if there is no GPU)",
    ),
    arg(
        "--devices-per-trial",
        type=int,
        default=1,
        metavar="K",
        help="GPUs of one run; without a GPU its processes, each on cores of its own",
    ),
    arg("--trials-per-device", type=int, default=1, metavar="K", help="runs on a GPU, or core"),
)
_DRIVER = (
    arg(
        "--ray",
        metavar="ADDRESS",
        help="run on this Ray cluster, or auto for the running one (default: on this machine)",
    ),
    *_PLACES,
    arg("--accumulate", type=int, default=1, metavar="K", help="parts of a step, to save memory"),
    arg("--retries", type=int, default=2, metavar="N", help="of a run that failed"),
    LOG,
)
_STARTING = (
    arg("--retry-failed", action="store_true", help="also run what was given up before"),
    # What follows changes the rounding, and so is the same for all runs of a directory.
    arg(
        "--precision",
        choices=("bf16", "fp32"),
        help="of products (default: as in earlier runs, or bf16 if this machine multiplies it)",
    ),
    arg("--threads", type=int, metavar="N", help="CPU threads of a run (default: as before, or 1)"),
    *_DRIVER,
)


@PROGRAM.command("list", examples=("list",))
def list_tables() -> int:
    """Print the tables with their rows, the search spaces, and the scales."""
    from ablations.search.spaces import SPACES
    from ablations.table1 import paper
    from ablations.tables.find import LAYERS_TABLE, TABLES, load_table
    from ablations.tables.scales import SCALES

    print(f"{LAYERS_TABLE}: {paper.TITLE}, measured; without a scale")
    print(f"    rows: {', '.join(paper.NAMES)}")
    for name in TABLES:
        table = load_table(name)
        print(f"{name}: {table.title}")
        print(f"    rows: {', '.join(row.name for row in table.run_rows)}")
        if table.scales:
            scales = (f"{scale.name} ({scale.corpus.name})" for scale in table.scales)
            print(f"    scales of its own: {', '.join(scales)}")
    for space in SPACES.values():
        print(f"search {space.name}: {space.title}")
        print(f"    varies: {', '.join(each.name for each in space.parameters)}")
    print("scales:")
    for scale in SCALES:
        print(f"    {scale.name}: {scale.corpus.name}, {scale.division}, {scale.max_steps:,} steps")
    return 0


@PROGRAM.command(
    "plan",
    _NAME,
    _SCALE,
    *_CELLS,
    arg(
        "--device",
        metavar="NAME",
        help="a GPU that need not be here, such as H100 (default: what this machine has)",
    ),
    arg(
        "--devices",
        type=int,
        metavar="N",
        help="GPUs, or cores (default: those of this machine, or of one run with --device)",
    ),
    *_PLACES,
    arg("--json", action="store_true", help="one object, see ablations/costs/estimate.py"),
    examples=(
        "plan table3 --scale small --seeds 1-3",
        "plan table3 --scale paper --device H100 --devices 8",
    ),
)
def plan(json: bool, **words: Any) -> int:
    """Print what a table will cost: hours, FLOPs, memory, disk.

    The hours are estimated from the nominal peak of the --device, or from the runs that the
    table's directory has, or else from a few steps that are measured on this machine.
    """
    from ablations.costs.estimate import describe, plan_table

    estimate = plan_table(**words)
    print(dumps(asdict(estimate)) if json else "\n".join(describe(estimate)))
    return 0


@PROGRAM.command(
    "run",
    _NAME,
    arg(
        "--scale",
        metavar="SCALE",
        help="what the sizes become, of those that list prints (default: none, for table1 alone)",
    ),
    *_CELLS,
    arg("--device", choices=("cpu", "cuda"), help="of table1 (default: a GPU if there is one)"),
    arg("--quick", action="store_true", help="of table1, the sizes that take a minute"),
    arg(
        "--from",
        dest="earlier",
        type=Path,
        metavar="DIR",
        help="copy the finished runs of DIR, such as a committed result, first (default: none)",
    ),
    arg(
        "--shard",
        type=Shard.parse,
        default="1/1",
        metavar="I/N",
        help="every N-th run from the I-th on, for the tasks of an array",
    ),
    *_STARTING,
    examples=(
        "run table3 --scale quick",
        "run table3 --scale small --seeds 1-3 --rows base,A-h1 --workers 2",
        "run table3 --scale paper --seeds 1-3 --ray auto",
        "run my_table.py --scale quick",
        "run table1 --quick",
    ),
)
def run(table: str, device: str | None, quick: bool, **words: Any) -> int:
    """Train the runs that a table lacks, then write and print its report.

    Interrupted and called again, it continues where it was. The report and the runs are in the
    table's directory; you can add seeds and rows later. table1 trains nothing: it measures layers,
    and takes --directory, --device and --quick alone; without --quick it adds the other sizes.
    """
    from ablations.tables.find import LAYERS_TABLE

    if table != LAYERS_TABLE:
        if quick:
            raise InputError("--quick is for table1: other tables have --scale quick")
        return _train_table(table, device, **words)
    defaults = vars(PROGRAM.parser.parse_args(["run", LAYERS_TABLE]))
    for name, value in words.items():
        if value != defaults[name] and name != "directory":
            option = "from" if name == "earlier" else name.replace("_", "-")
            raise InputError(f"{table} takes --directory, --device and --quick, but not --{option}")
    from ablations.table1.run import run_layers

    return run_layers(words["directory"], device, quick=quick)


def _train_table(
    table: str,
    device: str | None,
    scale: str | None,
    seeds: str,
    rows: str | None,
    directory: Path | None,
    retry_failed: bool,
    earlier: Path | None,
    precision: Precision | None,
    threads: int | None,
    **options: Any,
) -> int:
    if scale is None:
        raise InputError(f"run {table} needs --scale: list prints the scales")
    if device is not None:
        raise InputError(
            "--device is for table1: runs take the GPUs that there are, none with "
            "CUDA_VISIBLE_DEVICES= in the environment"
        )
    from ablations.run import run_table
    from ablations.runs.options import Options

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


@PROGRAM.command(
    "search",
    arg("space", metavar="SPACE", help="a name that list prints, or a file like my_space.py"),
    _SCALE,
    arg("--trials", type=int, required=True, metavar="N", help="how many in all"),
    arg("--seed", type=int, default=1, metavar="N", help="of all trials, and of the sampling"),
    arg(
        "--sampler",
        choices=("tpe", "random", "cmaes"),
        help="what proposes trials (default: as before, or tpe)",
    ),
    arg(
        "--pruner",
        choices=("none", "hyperband", "median"),
        help="what ends poor trials after the warm-up (default: as before, or hyperband)",
    ),
    arg(
        "--confirm",
        type=int,
        metavar="K",
        help="then train the K best and the base with three other seeds (default: none)",
    ),
    arg("--directory", type=Path, metavar="DIR", help="of the runs (default: runs/SPACE-SCALE)"),
    *_STARTING,
    examples=(
        "search base_lr --scale small --trials 40 --confirm 3",
        "search my_space.py --scale quick --trials 40 --pruner none",
    ),
)
def search(
    space: str,
    scale: str,
    trials: int,
    seed: int,
    sampler: Sampler | None,
    pruner: Pruner | None,
    confirm: int | None,
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
    from ablations.run import run_search
    from ablations.runs.options import Options

    return run_search(
        space,
        scale,
        trials=trials,
        seed=seed,
        sampler=sampler,
        pruner=pruner,
        confirm=confirm,
        directory=directory,
        retry_failed=retry_failed,
        precision=precision,
        threads=threads,
        options=Options(**options),
    )


@PROGRAM.command(
    "status",
    _DIRECTORY,
    arg("--watch", action="store_true", help="show it again and again until all is done"),
    arg("--json", action="store_true", help="one object, see ablations/status/model.py"),
    examples=("status runs/table3-small --watch",),
)
def status(directory: Path, watch: bool, json: bool) -> int:
    """Print how far a table or a search is, where its runs are, and what failed."""
    from ablations.files import LAYERS_FILE

    if (directory / LAYERS_FILE).is_file() and not json:
        from ablations.table1.measurements import load

        more = f"run table1 --directory {directory} continues, report shows it"
        print(f"Table 1, {load(directory).summary}: {more}")
        return 0
    from ablations.status.view import show_status

    return show_status(directory, watch=watch, as_json=json)


@PROGRAM.command(
    "dashboard",
    arg(
        "directories",
        nargs="*",
        type=Path,
        metavar="DIRECTORY",
        help="of a table or a search, or a folder of them (default: all in runs/)",
    ),
    arg("--port", type=int, default=8080, metavar="N", help="or the next one that is free"),
    arg("--host", default="127.0.0.1", metavar="ADDRESS", help="0.0.0.0 shows it to the network"),
    arg("--open", action="store_true", dest="open_browser", help="open it in a browser"),
    examples=("dashboard", "dashboard runs/table3-small runs/base_lr-small --port 8888 --open"),
)
def dashboard(directories: list[Path], host: str, port: int, open_browser: bool) -> int:
    """Show tables and searches live in a browser, until Ctrl-C.

    Only this machine can reach it unless you name another address. It reads files and never writes
    one; a driver does not notice it.
    """
    from ablations.dashboard.server import serve

    return serve(directories, host=host, port=port, open_browser=open_browser)


@PROGRAM.command(
    "report",
    _DIRECTORY,
    VARIANT,
    arg("--open", action="store_true", help="show it in a browser"),
    examples=("report runs/table3-small --open",),
)
def report(directory: Path, open: bool) -> int:
    """Write and print the report of a table, a search or measured layers, finished or not.

    It is one HTML file; the same as Markdown, LaTeX (table.tex) and CSV (results.csv), and its
    figures as SVG and PNG, are next to it.
    """
    from ablations.files import LAYERS_FILE, SEARCH_FILE
    from ablations.report.write import open_page, print_page

    if (directory / LAYERS_FILE).is_file():
        from ablations.table1.report import write_layers_report as write
    elif (directory / SEARCH_FILE).is_file():
        from ablations.search.search_report import write_search_report as write
    else:
        from ablations.report.report import write_report as write

    print_page(write(directory), directory)
    if open:
        open_page(directory)
    return 0


@PROGRAM.command(
    "wandb",
    _DIRECTORY,
    arg("--entity", metavar="E", help="user or team (default: WANDB_ENTITY, or the account's)"),
    arg(
        "--project",
        metavar="P",
        help="its project (default: WANDB_PROJECT, or ours)",
    ),
    examples=("wandb runs/table3-small --entity my-team",),
)
def wandb(directory: Path, entity: str | None, project: str | None) -> int:
    """Push what was tracked offline to W&B, with a workspace to look at it.

    The runs of a table or a search, then the table, then the panels of its report as a saved view,
    whose address is printed. What was pushed before is skipped. Needs an account: run wandb login,
    or set WANDB_API_KEY.
    """
    from ablations.tracking.push import push

    return push(directory, entity, project)


@PROGRAM.command(
    "collect",
    _DIRECTORY,
    arg("--into", dest="target", type=Path, required=True, metavar="DIR", help="made if missing"),
    examples=("collect runs/table3-small --into results/table3-small",),
)
def collect(directory: Path, target: Path) -> int:
    """Copy the finished runs of a table, without checkpoints, to another directory.

    That directory may hold other runs of the same table and scale; report works on it, and
    run --from starts from it.
    """
    from ablations.tables.collect import collect as copy

    copied = copy(directory, target)
    print(f"{len(copied)} finished runs copied to {target}")
    return 0


@PROGRAM.command(
    "compare",
    _DIRECTORY,
    arg("first", metavar="ROW", help="a row that report shows"),
    arg("second", metavar="ROW", help="another: the difference is its BLEU minus the first's"),
    arg("--seeds", metavar="1-3,7", help="only these (default: all that both rows have)"),
    examples=("compare runs/table3-small base A-h1 --seeds 1-3",),
)
def compare(directory: Path, first: str, second: str, seeds: str | None) -> int:
    """Test whether two rows of a table differ by more than chance.

    BLEU on the validation set is compared: for each seed that both rows have finished, by
    sacreBLEU's approximate randomisation of the lines; and over the seeds, by the 95 % interval of
    their differences.
    """
    from ablations.report.compare import compare_rows

    for line in compare_rows(directory, first, second, seeds):
        print(line, flush=True)
    return 0
