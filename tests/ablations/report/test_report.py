"""The report of a table as Markdown, HTML and text."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest
from vl_convert import vegalite_to_svg

from ablations.figures.table import draw_agreement
from ablations.report.latex import to_latex
from ablations.report.page import Table as PageTable
from ablations.report.page import Text
from ablations.report.plain import to_markdown, to_text
from ablations.report.report import compose, write_report
from ablations.report.results import to_csv
from ablations.report.summary import summarise
from ablations.tables.plan import claim_plan, make_plan
from ablations.tables.table import Cell, Table, row
from ablations.tables.table3 import BASE
from experiments.run.experiment import claim
from experiments.run.results import hypotheses_path
from tests.ablations.report.golden import GOLDEN
from tests.ablations.report.pages import drawn, marks, parsed, rows_of
from tests.ablations.samples import TINY, finish, leave_curve, small_plan
from transformer.errors import InputError
from transformer.formats import MISSING

RESULTS = Path(__file__).parents[3] / "experiments" / "results"


@pytest.mark.parametrize("name", GOLDEN)
def test_files_are_the_golden_ones(table3: Path, name: str) -> None:
    found = (table3 / name).read_text(encoding="utf-8")
    expected = GOLDEN[name].read_text(encoding="utf-8")
    assert found == expected, "python -m tests.ablations.report.golden"


@pytest.mark.parametrize("name", sorted(x.parent.name for x in RESULTS.glob("*/table.json")))
def test_committed_reports_are_as_they_would_be_written_now(name: str) -> None:
    summary = summarise(RESULTS / name)
    texts = {
        "report.md": to_markdown(compose(summary)),
        "table.tex": to_latex(summary),
        "results.csv": to_csv(summary),
    }
    for file, text in texts.items():
        committed = (RESULTS / name / file).read_text(encoding="utf-8")
        assert text == committed, f"python -m ablations report experiments/results/{name}"


def test_a_broken_result_is_named_and_left_out(tmp_path: Path) -> None:
    claim_plan(tmp_path, small_plan())
    finish(tmp_path, Cell("base", 1))
    finish(tmp_path, Cell("narrow", 1))
    (tmp_path / "narrow" / "seed-1" / "result.json").write_text("{}")
    page = write_report(tmp_path)
    assert "1 of 2 runs finished" in page.part("", Text).content[0]
    assert "left out" in page.part("", PageTable).rows[1]
    assert page.part("Not finished", Text).content[0].startswith("narrow, seed 1: left out: ")


def test_html_is_well_formed_and_needs_no_other_file(table3: Path) -> None:
    page = parsed(table3)
    assert not [
        tag for name in ("script", "img", "iframe") for tag in page.iter(name) if tag.get("src")
    ]
    links = [link.get("href", "") for link in page.iter("a")]
    assert "base/seed-1/result.json" in links
    assert all((table3 / link).is_file() for link in links)
    assert [len(row) for row in rows_of(table3)] == [24] * 20
    assert (table3 / "report.html").stat().st_size < 3e6


def test_figures_show_each_row(table3: Path) -> None:
    figures = drawn(table3)
    assert list(figures) == [
        "agreement-perplexity",
        "agreement-bleu",
        "seeds-perplexity",
        "seeds-bleu",
        "perplexity-parameters",
        "perplexity-flops",
    ]
    for name in ("agreement-perplexity", "agreement-bleu"):
        assert len(marks(figures[name], "symbol")) == 16
        assert len(marks(figures[name], "rule")) == 2 + 16  # the zeros, and an interval each
    for name in figures:
        assert (table3 / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        ElementTree.parse(table3 / "figures" / f"{name}.svg")


def test_one_large_difference_does_not_press_the_others_together() -> None:
    differences = (0.1, 0.2, 0.3, 0.4, 20.0)
    rows = [
        {"row": str(x), "paper": x, "ours": x, "low": None, "high": None, "agreement": "same sign"}
        for x in differences
    ]
    svg = ElementTree.fromstring(vegalite_to_svg(draw_agreement(rows, "Perplexity")))
    at = [point.get("transform", "") for point in marks(svg, "symbol")]
    left = [float(found[1]) for x in at if (found := re.match(r"translate\(([\d.]+),", x))]
    assert left[3] - left[0] > 40  # of 480; on a linear scale 7


def test_a_label_is_moved_from_the_point_to_its_right() -> None:
    places = {"far": (-3.0, 1.0), "near": (1.0, 1.0), "next": (1.1, 1.0), "above": (1.2, 2.0)}
    rows = [
        {"row": name, "paper": x, "ours": y, "low": None, "high": None, "agreement": "same sign"}
        for name, (x, y) in places.items()
    ]
    svg = ElementTree.fromstring(vegalite_to_svg(draw_agreement(rows, "Perplexity")))
    height = {
        text.text: float(text.get("transform", "").partition(",")[2].rstrip(")"))
        for text in marks(svg, "text")
    }
    assert height["far"] == height["next"] < height["near"]


def test_a_learning_curve_is_the_mean_of_a_rows_seeds(tmp_path: Path) -> None:
    claim_plan(tmp_path, small_plan(rows=["base"], seeds=(1, 2, 3)))
    leave_curve(tmp_path / "base" / "seed-1", {200: 90.0, 400: 40.0, 600: 8.0})
    leave_curve(tmp_path / "base" / "seed-2", {200: 30.0, 400: 20.0})
    figure = next(x for x in write_report(tmp_path).figures if x.name == "curves")
    points = figure.spec["concat"][0]["layer"][0]["data"]["values"]
    assert [(x["step"], x["perplexity"]) for x in points] == [(200, 60.0), (400, 30.0), (600, 8.0)]
    assert {x["seeds"] for x in points} == {"1, 2"}


def test_html_escapes_what_runs_and_users_wrote(table3: Path) -> None:
    text = (table3 / "report.html").read_text(encoding="utf-8")
    assert "&lt;Oops&gt; &amp; a | pipe" in text
    assert "<Oops>" not in text


def test_html_and_markdown_agree(table3: Path) -> None:
    lines = (table3 / "report.md").read_text(encoding="utf-8").splitlines()
    for cells in rows_of(table3):
        line = next(line for line in lines if line.startswith(f"| {cells[0]} "))
        assert [cell.strip() for cell in line.strip("|").split("|")] == cells


def test_the_terminal_shows_each_row_at_any_width(table3: Path) -> None:
    page = write_report(table3)
    texts = [to_text(page, width) for width in (180, 120, 80)]
    narrow = texts[-1]
    assert ["h=1 d_k=64 d_v=64" in text for text in texts] == [True, False, False]
    assert ["BLEU averaged" in text for text in texts] == [True, True, False]
    for name, *_ in page.part("", PageTable).rows:
        assert all(f"\n{name} " in text for text in texts)
    tables = narrow.split("Spearman")[0].splitlines()
    assert max(len(line) for line in tables) <= 80
    assert "rank correlation with the paper's rows: perplexity +0.99 (17 rows, 95 % in " in narrow
    assert "\n  Perplexity: 2 of 16 rows are within noise of the base; approximate" in narrow


def test_one_seed_has_no_intervals(tmp_path: Path) -> None:
    claim_plan(tmp_path, small_plan())
    finish(tmp_path, Cell("base", 1))
    write_report(tmp_path)
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "is of one seed" in text and "pooled" not in text and "95 %" not in text
    assert "What the seeds show" not in text
    assert "± " not in text.split("## How to read it")[0]
    assert "undefined (1 row)" in text


def test_a_table_without_results_has_a_report(tmp_path: Path) -> None:
    claim_plan(tmp_path, small_plan())
    write_report(tmp_path)
    assert "0 of 2 runs finished" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_runs_on_different_machines_are_counted(tmp_path: Path) -> None:
    claim_plan(tmp_path, small_plan())
    for name, device in (("base", "H200"), ("narrow", "P100")):
        finish(tmp_path, Cell(name, 1))
        path = tmp_path / name / "seed-1" / "result.json"
        path.write_text(path.read_text().replace("AMD EPYC, 1 thread", device))
    write_report(tmp_path)
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "- device: H200 (runs: 1); P100 (narrow/seed-1)" in text


def test_four_files_of_a_run_are_enough(tmp_path: Path) -> None:
    plan = claim_plan(tmp_path / "run", small_plan())
    for cell in plan.cells:
        finish(tmp_path / "run", cell)
        claim(cell.directory(tmp_path / "run"), plan.experiment(cell))
        hypotheses_path(cell.directory(tmp_path / "run"), "valid").write_text("Hallo\n")
    kept = ("table.json", "config.json", "result.json", "valid.hypotheses.txt")
    for path in (tmp_path / "run").rglob("*"):
        if path.name in kept:
            copy = tmp_path / "kept" / path.relative_to(tmp_path / "run")
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(path.read_bytes())
    assert write_report(tmp_path / "kept") == write_report(tmp_path / "run")
    assert "2 of 2 runs finished" in (tmp_path / "kept" / "report.md").read_text()


def test_a_directory_without_a_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not the directory of a table"):
        write_report(tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_table_of_ones_own_has_no_columns_of_the_paper(tmp_path: Path) -> None:
    own = Table(
        name="pair", title="<Own> & mine", base=BASE, rows=(row("base"), row("a", d_ff=512))
    )
    claim_plan(tmp_path, make_plan(own, TINY, own.rows, (1,)))
    finish(tmp_path, Cell("base", 1), bleu=80.0)
    finish(tmp_path, Cell("a", 1), bleu=79.0)
    text = to_text(write_report(tmp_path), 80)
    assert "BLEU" in text and "paper" not in text.split("Not finished")[0].split("parameters")[0]
    assert "changes" in text and "tokenised" not in text and "averaged" not in text
    assert rows_of(tmp_path)[1][-5:] == ["3.000", "0.000", "79.0", "\u22121.0", "0.562"]
    assert "&lt;Own&gt; &amp; mine" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_a_table_of_ones_own_is_not_grouped_and_shows_all_changes(tmp_path: Path) -> None:
    rows = [row(f"w-{number}", warmup_steps=number, clip_norm=1.0) for number in range(1, 8)]
    rows = (row("base"), *rows, row("big-v", vocab_size=9))
    own = Table(name="pair", title="", base=BASE, rows=rows)
    plan = claim_plan(tmp_path, make_plan(own, TINY, own.rows, (1, 2)))
    for place, cell in enumerate(plan.cells):
        finish(tmp_path, cell, perplexity=3.0 + place / 10)
        leave_curve(cell.directory(tmp_path), {200: 9.0, 400: 8.0})
    page = write_report(tmp_path)
    latex = (tmp_path / "table.tex").read_text(encoding="utf-8")
    assert latex.count("midrule") == 1
    for text in (latex, *((tmp_path / x).read_text() for x in ("report.md", "results.csv"))):
        assert "paper" not in text
    shown = page.part("", PageTable).select("terminal")
    head, (base, first, *_, other) = [column.title for column in shown.columns], shown.rows
    assert head[:4] == ["row", "vocabulary", "warmup steps", "clip norm"]
    assert base[:4] == ("base", "4000", "300", "none")
    assert first[:4] == ("w-1", "", "1", "1.0")
    assert set(shown.row_styles) == {""}
    # Perplexity is per word-piece, so it is not compared with that of another vocabulary.
    differences = [other[head.index(x)] for x in ("row", "PPL Δ", "BLEU Δ")]
    assert differences == ["big-v", MISSING, "0.0~"]
    (curves,) = (figure for figure in page.figures if figure.name == "curves")
    assert [panel["title"] for panel in curves.spec["concat"]] == ["w-1 to w-6", "w-7 to big-v"]
    assert "group" not in curves.caption
    assert "warmup_steps=1 clip_norm=1.0" in to_text(page, 400)


def test_latex_compiles(table3: Path, tmp_path: Path) -> None:
    if shutil.which("pdflatex") is None:
        pytest.skip("pdflatex is not installed")
    rows = (row("base"), row("wide_1.5", d_ff=4096))
    own = Table(name="pair", title="100 % & _more", base=BASE, rows=rows)
    claim_plan(tmp_path, make_plan(own, TINY, own.rows, (1,)))
    finish(tmp_path, Cell("base", 1), perplexity=float("inf"))
    write_report(tmp_path)
    shutil.copy(table3 / "table.tex", tmp_path / "table3.tex")
    (tmp_path / "document.tex").write_text(
        r"\documentclass{article}\usepackage{booktabs,amsmath}\begin{document}\tiny"
        r"\input{table3.tex} \input{table.tex}\end{document}"
    )
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "document.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    assert r"$\infty$" in (tmp_path / "table.tex").read_text(encoding="utf-8")
