"""Tables with results, and their reports read back.

``python -m tests.ablations.report.samples`` makes the expected reports in ``golden/`` again.
"""

from __future__ import annotations

import dataclasses
import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest import mock
from xml.etree import ElementTree

from ablations.folder import TableFolder
from ablations.report.numbers import compute_numbers
from ablations.report.report import write_report
from ablations.report.table_numbers import TableNumbers
from ablations.tables.plan import make_plan
from ablations.tables.plan_file import claim_plan
from ablations.tables.table import Cell, Table, row
from ablations.tables.table3 import BASE
from experiments.records.outputs import samples_path
from experiments.records.result import save_result
from tests.ablations.samples import TINY, fill_table3, leave_curve, result
from transformer.files import write_json

# Values by row and seed.
Runs = Mapping[str, Mapping[int, float]]
_SVG = "{http://www.w3.org/2000/svg}"

SIGNS = Table(
    name="pair",
    title="Signs",
    base=BASE,
    rows=(
        row("base", 5.0, 25.0),
        row("agrees", 6.0, 24.0, d_ff=1024),
        row("noise", 4.5, 26.0, d_ff=512),
        row("against", 4.0, 26.0, d_ff=256),
        row("equal", 5.0, 25.0, d_ff=128),
    ),
)
OWN = Table(
    name="pair",
    title="100 % <Own> & _mine",
    base=BASE,
    rows=(
        row("base"),
        *(row(f"w-{x}", warmup_steps=x, clip_norm=1.0, reference="better") for x in range(1, 8)),
        row("other-v", vocab_size=9),
    ),
)
SHARED = Table(
    name="pair",
    title="Rows of one training",
    base=BASE,
    rows=(
        row("base"),
        row("beam-1", beam_size=1),
        row("mean", average_checkpoints=2),
        row("wide", d_ff=1024),
        row("wide-beam-1", d_ff=1024, beam_size=1),
        row("deep", num_layers=8),
    ),
)


def fill(
    root: Path,
    runs: Runs,
    table: Table = SIGNS,
    changes: Mapping[tuple[str, int], Mapping[str, Any]] | None = None,
) -> TableNumbers:
    """A table with runs of these perplexities, and BLEU that is 40 less the perplexity.

    Args:
        changes: other fields of the results, by row and seed
    """
    seeds = sorted({seed for values in runs.values() for seed in values})
    rows = [row for row in table.rows if row.name in runs]
    claim_plan(root, make_plan(table, TINY, rows, seeds))
    for name, values in runs.items():
        for seed, perplexity in values.items():
            cell, bleu = Cell(name, seed), 40 - perplexity if perplexity < 40 else 0.0
            made = result(cell, perplexity, bleu)
            made = dataclasses.replace(made, **(changes or {}).get((name, seed), {}))
            cell.directory(root).mkdir(parents=True, exist_ok=True)
            save_result(cell.directory(root), made)
    return compute_numbers(TableFolder(root))


def fill_paper(root: Path) -> None:
    """Table 3 in every state, with curves, a translation and a log in its first row."""
    fill_table3(root)
    run = root / "base" / "seed-1"
    texts = {
        "source": "a <script>alert(1)</script> dog",
        "reference": "ein Hund",
        "translation": "ein Kund",
    }
    write_json(samples_path(run, "valid"), {"samples": [{"chrf": 61.5, **texts}]})
    (run / "log.txt").write_text("step 1\n</pre><b>bold</b>\n")
    leave_curve(run, {100: 9.1, 200: 8.2})


def fill_signs(root: Path) -> None:
    """Rows that agree, contradict and are noise; BLEU is pooled, perplexity is not."""
    base = {1: 8.05, 2: 8.1, 3: 8.0}
    runs = {
        "base": base,
        "agrees": {seed: value + 2 + 0.01 * seed for seed, value in base.items()},
        "noise": {1: 8.2, 2: 8.05, 3: 8.0},
        "against": {seed: value + 1 - 0.02 * seed**2 for seed, value in base.items()},
        "equal": {1: 11.0, 2: 11.1, 3: 12.0},
    }
    fill(root, runs, changes={("equal", 3): {"bleu": 28.9}})


def fill_own(root: Path) -> None:
    """A table that is not the paper's, whose runs differ in all that a report counts."""
    runs = {x.name: {1: 3.0 + 0.1 * index, 2: 3.1} for index, x in enumerate(OWN.rows)}
    runs["w-1"][1] = float("inf")
    changes: dict[tuple[str, int], dict[str, Any]] = {
        (name, seed): {"data_digest": "most"} for name, seeds in runs.items() for seed in seeds
    }
    changes["w-1", 1] |= {"device": "H200", "commit": "fedcba9876543"}
    changes["w-2", 2] |= {"averaged_checkpoints": 5, "data_digest": None}
    changes["w-3", 2] |= {"data_digest": "other"}
    fill(root, runs, OWN, changes)
    leave_curve(root / "base" / "seed-1", {200: 9.0, 400: 8.0})


def fill_shared(root: Path) -> None:
    """Rows of which some share a training: perplexity does not depend on the beam."""
    base, wide = {1: 8.0, 2: 8.4, 3: 9.1}, {1: 7.1, 2: 7.0, 3: 8.5}
    runs = {
        "base": base,
        "beam-1": base,
        "mean": {1: 7.95, 2: 8.34, 3: 9.05},
        "wide": wide,
        "wide-beam-1": wide,
        "deep": {1: 9.9, 2: 10.0, 3: 11.5},
    }
    changes = {
        (name, seed): {"bleu": 40 - value - 0.5 - 0.05 * seed}
        for name in ("beam-1", "wide-beam-1")
        for seed, value in runs[name].items()
    }
    fill(root, runs, SHARED, changes)
    for name in ("base", "beam-1", "deep"):
        leave_curve(root / name / "seed-1", {100: 9.1, 200: 8.2})


# Tables of which each has a report in ``golden/``: how they are filled, and a terminal's width.
GOLDEN = {
    "table3": (fill_paper, 80),
    "signs": (fill_signs, 120),
    "own": (fill_own, 300),
    "shared": (fill_shared, 120),
}
FILES = ("report.md", "table.tex", "results.csv", "terminal.txt")
FOLDER = Path(__file__).with_name("golden")


def fill_and_report(name: str, root: Path) -> None:
    """Fill a directory and write its report, and what a terminal shows of it."""
    fill_it, width = GOLDEN[name]
    fill_it(root)
    with mock.patch.dict(os.environ, {"COLUMNS": str(width)}):
        (root / "terminal.txt").write_text(write_report(TableFolder(root)), encoding="utf-8")


def tables(root: Path) -> list[dict[str, dict[str, str]]]:
    """The tables of the Markdown report: cells by row and column, in their order."""
    text = (root / "report.md").read_text(encoding="utf-8")
    found: list[dict[str, dict[str, str]]] = []
    for block in re.findall(r"(?:^\|.*\n)+", text, flags=re.MULTILINE):
        head, _, *rows = ([x.strip() for x in y[1:-1].split(" | ")] for y in block.splitlines())
        found.append({cells[0]: dict(zip(head, cells, strict=True)) for cells in rows})
    return found


def parsed(root: Path) -> ElementTree.Element:
    """The HTML file without its scripts, which is XML but for its doctype and tags left open."""
    text = (root / "report.html").read_text(encoding="utf-8")
    text = re.sub(r"<script>.*?</script>", "", text, flags=re.DOTALL)
    return ElementTree.fromstring(re.sub(r"<!doctype html>|<(meta|link) [^>]*>", "", text).strip())


def html_tables(root: Path) -> list[list[list[str]]]:
    """The cells of the tables of the HTML report, without those that rows open to."""
    found: list[list[list[str]]] = []
    for table in parsed(root).findall("./body/main/div/table"):
        rows = [row for row in table.findall("tbody/tr") if row.get("class") != "details"]
        found.append([["".join(cell.itertext()) for cell in row] for row in rows])
    return found


def drawn(root: Path) -> dict[str, ElementTree.Element]:
    """The figures that the page shows before its script has run, by name."""
    figures = parsed(root).iter("figure")
    return {figure.attrib["id"]: next(figure.iter(f"{_SVG}svg")) for figure in figures}


def marks(svg: ElementTree.Element, kind: str) -> list[ElementTree.Element]:
    """The marks of a figure, such as ``symbol``, ``line``, ``rect``, ``rule``, without its axes."""
    groups = [x for x in svg.iter(f"{_SVG}g") if f"mark-{kind} role-mark" in x.get("class", "")]
    return [mark for group in groups for mark in group]


if __name__ == "__main__":
    for each in GOLDEN:
        with tempfile.TemporaryDirectory() as folder:
            fill_and_report(each, Path(folder))
            for file in FILES:
                (FOLDER / each / file).write_bytes((Path(folder) / file).read_bytes())
