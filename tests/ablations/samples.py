"""A small table, a scale and results, the same for all tests of this folder."""

from __future__ import annotations

import dataclasses
import hashlib
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ablations.runs.process import Job, Place, environment
from ablations.tables.plan import Plan, make_plan
from ablations.tables.plan_file import claim_plan
from ablations.tables.scale import scale
from ablations.tables.table import Cell, Table, row
from ablations.tables.table3 import BASE, TABLE
from experiments.records.progress import Progress, RunState, read_progress
from experiments.records.result import Averaged, Result, save_result
from experiments.records.run import LOG_FILE, locate
from tests.ablations import stand_in
from tests.ablations.stand_in import SETTINGS_FILE, STARTED_FILE
from transformer.config import to_dict
from transformer.corpus import Corpus, ParallelText, TextFile
from transformer.files import write_json

# A command line in this process: its exit code, and all that it prints.
Call = Callable[[str], tuple[int, str]]
_TEXT = ParallelText(source=TextFile(location="text.en"), target=TextFile(location="text.de"))
CORPUS = Corpus(
    name="toy",
    source_language="en",
    target_language="de",
    licence="CC0",
    train=(_TEXT,),
    valid=_TEXT,
)
TINY = scale(
    "tiny",
    corpus=CORPUS,
    divide_widths=8,
    divide_layers=2,
    max_steps=1_500,
    vocab_size=4_000,
    tokens_per_batch=600,
    warmup_steps=300,
    learning_rate_factor=0.5,
    precision="fp32",
)
SMALL_TABLE = Table(
    name="pair",
    title="Two widths",
    base=BASE,
    rows=(row("base", 5.0, 25.0, 65), row("narrow", 6.0, 24.0, d_ff=1024), row("free", d_ff=512)),
    scales=(TINY,),
)


def result(cell: Cell, perplexity: float = 3.0, bleu: float = 80.0) -> Result:
    """A finished run's result, in which every figure that is not given is fixed."""
    return Result(
        experiment=f"pair-tiny/{cell.row}",
        seed=cell.seed,
        bleu=bleu,
        bleu_signature="nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0",
        perplexity=perplexity,
        perplexity_per_char=1.5,
        parameters=562_432,
        parameters_paper_vocab=2_927_872,
        steps=1_500,
        source_tokens=900_000,
        target_tokens=880_000,
        flops=1.5e13,
        train_seconds=61.5,
        tokens_per_second=14_300.0,
        device="AMD EPYC, 1 thread",
        precision="bf16",
        averaged_checkpoints=1,
        versions={"torch": "2.13.0", "lightning": "2.6.6"},
        commit="0123abc",
        finished_at="2026-11-21T10:00:00+00:00",
        corpus_target_tokens=400_000,
    )


def finish(root: Path, cell: Cell, perplexity: float = 3.0, bleu: float = 80.0) -> Result:
    """Leave a result as a run would."""
    directory = cell.directory(root)
    directory.mkdir(parents=True, exist_ok=True)
    made = result(cell, perplexity, bleu)
    save_result(directory, made)
    return made


def leave_curve(directory: Path, perplexities: dict[int, float]) -> None:
    """The file in which a run leaves its perplexities by step."""
    head = "step,loss,train_perplexity,learning_rate,gradient_norm,valid_loss,valid_perplexity"
    lines = [f"{step},,,,,1.1,{value}" for step, value in perplexities.items()]
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "metrics.csv").write_text("\n".join([head, *lines]) + "\n")


def small_plan(rows: Sequence[str] = ("base", "narrow"), seeds: Sequence[int] = (1,)) -> Plan:
    """A plan of the small table."""
    chosen = [row for row in SMALL_TABLE.rows if row.name in rows]
    return make_plan(SMALL_TABLE, TINY, chosen, seeds)


def fill_table3(root: Path) -> None:
    """A directory of Table 3 with two seeds: most rows done, the rest in every other state.

    The figures follow the paper's, with a little noise made of the cells' names.
    """
    plan = claim_plan(root, make_plan(TABLE, TINY, TABLE.rows, (1, 2)))
    unfinished = {
        Cell("C-d1024", 2): Progress(stage=RunState.TRAIN, step=400, max_steps=1_500),
        Cell("C-ff4096", 1): Progress(stage=RunState.EVALUATE, step=1_500, max_steps=1_500),
        Cell("C-ff4096", 2): None,
        Cell("D-p0.2", 1): Progress(
            stage=RunState.FAILED,
            step=700,
            max_steps=1_500,
            message="exit code 1: <Oops> & a | pipe",
        ),
        Cell("D-p0.2", 2): None,
        Cell("E", 1): None,
        Cell("E", 2): None,
    }
    for cell in plan.cells:
        if cell in unfinished:
            progress = unfinished[cell]
            if progress is not None:
                cell.directory(root).mkdir(parents=True)
                write_json(cell.directory(root) / "progress.json", to_dict(progress))
            continue
        reported = next(row.reported for row in TABLE.rows if row.name == cell.row)
        noise = int(hashlib.sha256(str(cell).encode()).hexdigest(), 16) % 1000 / 1000 - 0.5
        perplexity = 1.6 + 0.4 * ((reported.perplexity or 0.0) - 4.92) + 0.04 * noise
        bleu = 82 + 6 * ((reported.bleu or 0.0) - 25.8) + 1.5 * noise
        done = dataclasses.replace(
            result(cell, perplexity, bleu),
            experiment=f"table3-tiny/{cell.row}",
            tokenised_bleu=bleu + 0.25,
            tokenised_bleu_signature="nrefs:1|case:mixed|quotes:plain|tok:moses-de",
            averaged=Averaged(
                checkpoints=5,
                bleu=bleu + 0.7,
                tokenised_bleu=bleu + 0.9,
                perplexity=perplexity - 0.03,
                perplexity_per_char=1.4,
            ),
        )
        cell.directory(root).mkdir(parents=True)
        save_result(cell.directory(root), done)


def prepare_stand_ins(
    root: Path,
    behaviour: Mapping[Cell, str] | Mapping[str, str],
    *,
    step_seconds: float = 0.0,
    perplexities: Mapping[str, float] | None = None,
) -> None:
    """Tell the stand-ins of the runs in ``root`` what to do; see ``stand_in.py``."""
    root.mkdir(parents=True, exist_ok=True)
    settings = {
        "behaviour": {str(cell): name for cell, name in behaviour.items()},
        "result": to_dict(result(Cell("base", 1))),
        "step_seconds": step_seconds,
        "perplexities": {**(perplexities or {})},
    }
    write_json(root / SETTINGS_FILE, settings)


def start_stand_in(directory: Path, job: Job, place: Place) -> subprocess.Popen[bytes]:
    """In place of ``ablations.runs.process.start``."""
    with (directory / LOG_FILE).open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-S", stand_in.__file__, str(directory), str(job.accumulate)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=job.folder,
            env=environment(job, place),
            start_new_session=True,
        )


def started(root: Path) -> list[str]:
    """The cells whose stand-ins were started, in order."""
    path = root / STARTED_FILE
    return [line.split()[0] for line in path.read_text().splitlines()] if path.exists() else []


def when(condition: Callable[[], bool], action: Callable[[], None]) -> threading.Thread:
    """Do something as soon as a condition holds, beside the test."""

    def wait() -> None:
        deadline = time.monotonic() + 60
        while not condition() and time.monotonic() < deadline:
            time.sleep(0.02)
        assert condition(), "it did not come to that within 60 s"
        action()

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def hangs(root: Path, cell: Cell) -> bool:
    """Whether the stand-in of ``cell`` has come to where it waits."""
    progress = read_progress(locate(cell.directory(root)))
    return progress is not None and progress.stage == "train"
