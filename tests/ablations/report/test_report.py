"""The files of a table's report, and a terminal's text."""

from __future__ import annotations

import math
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from markdown_it import MarkdownIt

from ablations.cli import report
from ablations.figures.curves import curve_of, mean_curve
from ablations.folder import TableFolder
from ablations.report.figures import draw_agreement, table_figures
from ablations.report.grid import Grid, escape_latex, terminal_table
from ablations.report.layout import TEMPLATES, render
from ablations.report.numbers import compute_numbers
from ablations.report.report import write_report
from ablations.report.results import results_grid
from ablations.tables.plan_file import claim_plan
from ablations.tables.table import Cell
from experiments.figures.render import DrawingError, draw
from experiments.figures.style import Spec
from experiments.records.result import MEASURES, save_result
from experiments.records.run import read_run
from tests.ablations.report.conftest import Reported
from tests.ablations.report.samples import (
    FILES,
    FOLDER,
    GOLDEN,
    SIGNS,
    drawn,
    fill,
    html_tables,
    marks,
    parsed,
    tables,
)
from tests.ablations.samples import finish, leave_curve, result, small_plan
from transformer import formats

RESULTS = Path(__file__).parents[3] / "experiments" / "results"
# The files of a report that are committed, by that of the plan.
REPORT = {
    "table.json": ("report.md", "table.tex", "results.csv"),
    "search.json": ("report.md", "best.json"),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_files_are_the_golden_ones_and_html_has_the_same_tables(
    reported: Reported, name: str
) -> None:
    root = reported(name)
    for file in FILES:
        found = (root / file).read_text(encoding="utf-8")
        expected = (FOLDER / name / file).read_text(encoding="utf-8")
        assert found == expected, "python -m tests.ablations.report.samples"
    assert html_tables(root) == [[list(y.values()) for y in x.values()] for x in tables(root)]


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize(
    "plan",
    [x.relative_to(RESULTS) for kind in REPORT for x in sorted(RESULTS.rglob(kind))],
    ids=lambda plan: str(plan.parent),
)
def test_committed_reports_are_as_they_would_be_written_now(plan: Path, tmp_path: Path) -> None:
    root, committed = tmp_path / plan.parent, RESULTS / plan.parent
    shutil.copytree(RESULTS / plan.parts[0], tmp_path / plan.parts[0])
    report(root)
    for file in REPORT[plan.name]:
        found, expected = ((x / file).read_text("utf-8") for x in (root, committed))
        assert found == expected, f"python -m ablations report experiments/results/{plan.parent}"
    assert [cells[0] for cells in html_tables(root)[0]] == list(tables(root)[0])
    assert all((root / link.attrib["href"]).is_file() for link in parsed(root).iter("a"))


def test_html_needs_no_other_file_and_escapes_what_runs_and_users_wrote(
    reported: Reported,
) -> None:
    root = reported("table3", drawn=True)
    page = parsed(root)
    assert not [x for kind in ("script", "img", "iframe") for x in page.iter(kind) if x.get("src")]
    links = [link.get("href", "") for link in page.iter("a")]
    assert "base/seed-1/result.json" in links
    opened = "".join(next(x for x in page.iter("tr") if x.get("id") == "rows-1").itertext())
    assert "h1 (base: 8)" in opened
    assert all((root / link).is_file() for link in links)
    text = (root / "report.html").read_text(encoding="utf-8")
    assert "&lt;Oops&gt; &amp; a | pipe" in text and "<Oops>" not in text and len(text) < 3e6
    assert "100 % &lt;Own&gt; &amp; _mine" in (reported("own") / "report.html").read_text("utf-8")


def test_figures_show_each_row(reported: Reported) -> None:
    root = reported("table3", drawn=True)
    figures = drawn(root)
    kinds = ("agreement", "differences")
    pairs = [f"{kind}-{name}" for kind in kinds for name in ("perplexity", "bleu")]
    assert list(figures) == [*pairs, "curves", "perplexity-parameters", "perplexity-flops"]
    for name in ("agreement-perplexity", "agreement-bleu"):
        assert len(marks(figures[name], "symbol")) == 16
        assert len(marks(figures[name], "rule")) == 2 + 16  # the zeros, and an interval each
    for name in figures:
        assert (root / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        svg = ElementTree.parse(root / "figures" / f"{name}.svg").getroot()
        ground = svg[0].attrib  # so that it can be read on a dark page, as GitHub's
        assert ground == {"width": "100%", "height": "100%", "fill": "white"}
    own = drawn(reported("own", drawn=True))
    texts = [text.text for text in marks(own["differences-bleu"], "text")]
    assert texts.count("better") == 6 and texts[-1] == "others found"
    assert not [name for name in own if "agreement" in name]
    panels = [text.text for text in own["curves"].iter("{http://www.w3.org/2000/svg}text")]
    assert "Learning curves" in panels  # of the base alone, so not in grey


def test_a_row_alone_shows_its_seeds_and_bleu_stands_against_flops(tmp_path: Path) -> None:
    table = fill(tmp_path, {"base": {1: 8.0, 2: 8.2, 3: math.inf}})
    seeds = {figure.name: figure.spec for figure in table_figures(table)}
    assert list(seeds) == ["seeds-perplexity", "seeds-bleu"]
    shown = [(x["seed"], x["value"]) for x in seeds["seeds-perplexity"]["data"]["values"]]
    assert shown == [(1, 8.0), (2, 8.2)]
    *_, bleu = table_figures(compute_numbers(TableFolder(RESULTS / "table2-small")))
    groups = Counter(x["group"] for x in bleu.spec["data"]["values"])
    assert bleu.name == "bleu-flops"
    assert groups == {"paper, de": 5, "ours, de": 2, "paper, fr": 6, "ours, fr": 2}


@pytest.mark.slow
def test_the_labels_of_an_axis_of_flops_differ(tmp_path: Path) -> None:
    runs = {name: {1: 8.0 + place} for place, name in enumerate(("base", "agrees", "noise"))}
    specs: dict[str, Spec] = {}
    for most in (1.013, 1.17, 1.9, 3.1, 97.0):
        flops = {"base": 2.83e13, "agrees": 2.83e13 * (1 + most) / 2, "noise": 2.83e13 * most}
        changes = {(name, 1): {"flops": value} for name, value in flops.items()}
        table = fill(tmp_path / str(most), runs, changes=changes)
        figures = {figure.name: figure.spec for figure in table_figures(table)}
        specs[str(most)] = figures["perplexity-flops"]
    for most, (svg, _) in draw(specs).items():
        labels = re.findall(r">([\d.]+e\+\d+)<", svg)
        assert len(labels) == len(set(labels)) > 1, most


def test_zero_is_seen_on_white_and_in_the_dark(tmp_path: Path) -> None:
    """The contrast is at least 3, as WCAG 2.1 asks of graphics (1.4.11)."""

    def luminance(colour: str) -> float:
        parts = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
        linear = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    table = fill(tmp_path, {"base": {1: 8.0}, "agrees": {1: 9.0}})
    specs = {figure.name: figure.spec for figure in table_figures(table)}
    zeros = [
        layer["mark"]
        for name in ("agreement-perplexity", "differences-perplexity")
        for layer in specs[name]["layer"]
        if layer["mark"].get("strokeDash")
    ]
    assert len(zeros) == 3
    css = (TEMPLATES / "report.css").read_text()
    for paper in ["#ffffff", *re.findall(r"--paper: (#\w{6})", css)]:
        for mark in zeros:
            lighter, darker = sorted(map(luminance, (mark["color"], paper)), reverse=True)
            assert (lighter + 0.05) / (darker + 0.05) >= 3 and mark.get("opacity", 1) == 1


@pytest.mark.usefixtures("undrawn")
def test_figures_of_an_earlier_report_are_removed(tmp_path: Path) -> None:
    alone = {"base": {1: 8.0, 2: 8.2}}
    for runs, there in ((alone, True), ({**alone, "agrees": {1: 10.0, 2: 10.1}}, False)):
        fill(tmp_path, runs)
        write_report(TableFolder(tmp_path))
        for ending in ("svg", "png"):
            assert (tmp_path / "figures" / f"seeds-bleu.{ending}").exists() == there


def test_a_report_whose_figures_cannot_be_drawn_has_none_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path, {"base": {1: 8.0, 2: 8.2}})
    (tmp_path / "figures").mkdir()
    for old in ("seeds-bleu.svg", "seeds-bleu.png"):
        (tmp_path / "figures" / old).write_bytes(b"of an earlier report")

    def refuse(_: object) -> None:
        raise DrawingError("memory is short")

    monkeypatch.setattr("ablations.report.layout.draw", refuse)
    said = "plots cannot be drawn here: memory is short, so this report has none"
    assert f"Warnings:\n  {said}\n" in write_report(TableFolder(tmp_path))
    assert not list((tmp_path / "figures").iterdir()) and not drawn(tmp_path)
    markdown = (tmp_path / "report.md").read_text("utf-8")
    assert f"## Warnings\n\n- {said}\n" in markdown and "figures/" not in markdown
    assert said in (tmp_path / "report.html").read_text("utf-8")


@pytest.mark.slow
def test_a_limit_on_memory_costs_a_report_its_figures_alone(tmp_path: Path) -> None:
    fill(tmp_path, {"base": {1: 8.0, 2: 8.2}})
    limited = "import resource; resource.setrlimit(resource.RLIMIT_AS, (2**31, 2**31)); "
    command = f"from ablations.cli import PROGRAM; PROGRAM.run(['report', {str(tmp_path)!r}])"
    ran = subprocess.run([sys.executable, "-c", limited + command], check=True, capture_output=True)
    assert b"plots cannot be drawn here: signal 5 ended" in ran.stdout
    assert drawn(tmp_path) == {}


def test_a_learning_curve_is_the_mean_of_a_rows_seeds(tmp_path: Path) -> None:
    leave_curve(tmp_path / "base" / "seed-1", {200: 90.0, 400: 40.0, 600: 8.0})
    leave_curve(tmp_path / "base" / "seed-2", {200: 30.0, 400: 20.0})
    names = [f"base/seed-{seed}" for seed in (1, 2, 3)]
    curve = mean_curve([curve_of(read_run(tmp_path / name, name)) for name in names])
    assert curve.points == ((200, 60.0), (400, 30.0), (600, 8.0))
    assert (curve.row, curve.seeds) == ("base", "1, 2")


def test_a_label_covers_no_point_and_no_other_label() -> None:
    places = {"far": (-3.0, 1.0), "near": (1.0, 1.0), "next": (1.1, 1.0), "same": (1.1, 1.0)}
    signs = {"low": None, "high": None, "agreement": "same sign"}
    rows = [{"row": name, "paper": x, "ours": y, **signs} for name, (x, y) in places.items()]
    found = draw_agreement(rows, MEASURES["perplexity"]).spec["data"]["values"]
    assert [x["side"] for x in found[:3]] == [1, -1, 1]
    assert [x["below"] == 0 for x in found] == [True, True, True, False]


@pytest.mark.usefixtures("undrawn")
def test_what_others_wrote_cannot_change_or_flood_a_terminal(tmp_path: Path) -> None:
    odd = "\x1b]0;title\x07\x1b[2J\0\r"
    strange = {"device": f"H200{odd}", "commit": odd, "bleu_signature": "s" * 100_000}
    table = replace(SIGNS, title=f"Signs{odd}")
    runs = {"base": {1: 8.0, 2: 8.2}, "agrees": {1: 9.0}}
    fill(tmp_path, runs, table, {("base", 1): strange, ("base", 2): {"device": "d" * 100_000}})
    text = write_report(TableFolder(tmp_path))
    assert all(line.isprintable() and len(line) < 3_000 for line in text.split("\n"))
    assert "different devices, so their means say little: H200" in text
    latex = (tmp_path / "table.tex").read_text("utf-8")
    assert (
        r"Signs\x1b]0;title\x07\x1b[2J\x00\x0d, scale tiny" in latex
        and latex.replace("\n", "").isprintable()
    )


def test_a_terminal_shows_each_row_at_any_width(reported: Reported) -> None:
    root = reported("table3")
    grid = results_grid(compute_numbers(TableFolder(root)), root)
    texts = [terminal_table(grid, width) for width in (240, 120, 80)]
    assert ["d_model" in text for text in texts] == [True, False, False]
    assert ["BLEU averaged" in text for text in texts] == [True, True, False]
    for name in grid.columns[0].cells:
        assert all(f"\n{name} " in text for text in texts)
    assert max(map(len, texts[-1].splitlines())) <= 80


def test_a_table_without_results_has_a_report(tmp_path: Path) -> None:
    claim_plan(tmp_path, small_plan())
    finish(tmp_path, Cell("narrow", 4))
    text = write_report(TableFolder(tmp_path))
    assert "0 of 2 runs finished" in text
    assert "  narrow/seed-4: left out, as table.json does not list it\n" in text
    assert tables(tmp_path)[0]["narrow"]["PPL"] == "missing"


@pytest.mark.usefixtures("undrawn")
def test_a_table_may_show_how_fast_each_row_decodes(tmp_path: Path) -> None:
    """The mean over seeds; older results have none, and other tables no such column."""
    cells = [Cell("base", 1), Cell("base", 2), Cell("narrow", 1)]
    for asked in (True, False):
        root = tmp_path / str(asked)
        claim_plan(root, replace(small_plan(seeds=(1, 2)), decoding_speed=asked))
        for cell, speed in zip(cells, (29.0, 32.0, None), strict=True):
            finish(root, cell)
            save_result(cell.directory(root), replace(result(cell), sentences_per_second=speed))
        report(root)
        costs = next(x for x in tables(root) if "tokens/s" in x["base"])
        shown = [row.get("sentences/s") for row in costs.values()]
        assert shown == (["30.5", formats.MISSING] if asked else [None, None])


def _chrf(runs: Mapping[str, Mapping[int, float]]) -> dict[tuple[str, int], dict[str, Any]]:
    return {
        (row, seed): {"chrf": value, "chrf_signature": "nrefs:1|nc:6", "test_chrf": value + 1}
        for row, values in runs.items()
        for seed, value in values.items()
    }


@pytest.mark.usefixtures("undrawn")
def test_chrf_stands_beside_bleu_and_a_result_without_it_is_left_blank(tmp_path: Path) -> None:
    runs = {"base": {1: 8.1, 2: 8.3}, "agrees": {1: 9.1, 2: 9.2}, "noise": {1: 8.2, 2: 8.1}}
    known = {"base": {1: 51.0, 2: 53.0}, "agrees": {1: 47.0}}  # older runs lack it
    fill(tmp_path, runs, changes=_chrf(known))
    report(tmp_path)
    text = (tmp_path / "report.md").read_text("utf-8")
    assert "chrF is sacreBLEU's chrF2" in text
    assert "- chrF: nrefs:1|nc:6" in text.replace("**", "").replace("\\|", "|")
    rows = tables(tmp_path)[0]
    assert list(rows["base"]).index("chrF") == list(rows["base"]).index("BLEU Δ paper") + 1
    shown = [(row["chrF"], row["chrF test"]) for row in rows.values()]
    none = (formats.MISSING, formats.MISSING)
    assert shown == [("52.0 ± 1.4", "53.0 ± 1.4"), ("47.0", "48.0"), none]
    assert "chrF" in (tmp_path / "table.tex").read_text("utf-8")
    lines = (tmp_path / "results.csv").read_text("utf-8").splitlines()
    columns = zip(*(line.split(",") for line in lines), strict=True)
    found = next(cells for cells in columns if cells[0] == "chrf")
    assert found == ("chrf", "51.0", "53.0", "47.0", "", "", "")
    records = [(x["row"], x["chrf"]) for x in TableFolder(tmp_path).records() if x["seed"] == 2]
    assert records == [("base", 53.0), ("agrees", None), ("noise", None)]


@pytest.mark.usefixtures("undrawn")
def test_a_table_may_compare_rows_by_chrf(tmp_path: Path) -> None:
    """It has differences, intervals and verdicts as all measures have."""
    runs = {"base": {1: 8.1, 2: 8.3, 3: 8.0}, "agrees": {1: 9.1, 2: 9.2, 3: 9.0}}
    known = {"base": {1: 51.0, 2: 53.0, 3: 52.0}, "agrees": {1: 47.0, 2: 49.2, 3: 47.8}}
    table = replace(SIGNS, measures=("perplexity", "chrf"))
    numbers = fill(tmp_path, runs, table, changes=_chrf(known))
    score = numbers.rows[1].scores["chrf"]
    assert score.difference is not None and score.verdict == "worse"
    assert math.isclose(score.difference.mean, -4.0)
    report(tmp_path)
    text = (tmp_path / "report.md").read_text("utf-8")
    assert "- chrF: 0 of 1 row is within noise of the base." in text
    assert tables(tmp_path)[0]["agrees"]["chrF Δ"] == formats.difference(-4.0, 1)
    heads = [head for head in tables(tmp_path)[0]["base"] if head.startswith("chrF")]
    assert heads == ["chrF", "chrF Δ", "chrF test"]


def test_latex_keeps_what_would_be_a_command_or_another_letter() -> None:
    for text, escaped in (
        ("[38] A_B & 5 %", r"{[}38] A\_B \& 5 \%"),
        ("*", "{*}"),
        ("a|b < c", "a$|$b $<$ c"),
    ):
        assert escape_latex(text) == escaped


@pytest.mark.parametrize("name", GOLDEN)
def test_latex_is_well_formed(reported: Reported, name: str) -> None:
    """As TeX reads it: braces and math that end, full rows, and no sign that it takes otherwise."""
    text = (reported(name) / "table.tex").read_text("utf-8")
    body = "\n".join(line for line in text.splitlines() if not line.startswith("%"))
    plain = re.sub(r"\\[&%$#_{}]", "", body)
    assert plain.count("{") == plain.count("}")
    (columns,) = re.findall(r"\\begin{tabular}{([lcr]+)}", plain)
    rows = [line for line in plain.splitlines() if line.endswith(r" \\")]
    assert len(rows) > 5
    for row in rows:
        spans = [int(count) for count in re.findall(r"\\multicolumn{(\d+)}", row)]
        assert row.count("&") + 1 + sum(spans) - len(spans) == len(columns), row
        assert row.count("$") % 2 == 0
        prose = re.sub(r"\$[^$]*\$", "", row)
        assert prose.isascii() and not set("#%_^~<>|") & set(prose), row


def test_latex_compiles(reported: Reported, tmp_path: Path) -> None:
    if shutil.which("pdflatex") is None:
        pytest.skip("pdflatex is not installed")
    for name in GOLDEN:
        shutil.copy(reported(name) / "table.tex", tmp_path / f"{name}.tex")
    inputs = " ".join(rf"\input{{{name}.tex}}" for name in GOLDEN)
    (tmp_path / "document.tex").write_text(
        r"\documentclass{article}\usepackage{booktabs,amsmath}\begin{document}\tiny"
        rf" {inputs} \end{{document}}"
    )
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "document.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]


TEXTS = (
    "a|b `c` <script>alert(1)</script>",
    "first\nsecond\n\n# third",
    "&lt;b&gt; &amp; &#60; AT&T; a & b",
    "~~gone~~ *b* _i_ __b__ snake_case [l](http://x) ![i](y)",
    *("# head", "####### no head", "1. one", "27) two", "- item", "+ plus", "---", "==="),
    *("~~~ fence", "``` fence", "> quote", "\\", "a\\|b|", "$x$", "-0.5", "+0.83", "3.5 s"),
    "\x1b[31mred\x1b[0m\x00",
)
PARTS = """{% import layout as to with context %}{% call to.page() %}
{{ to.paragraph(text) }}{{ to.bullets([text, text]) }}{{ to.facts([(text, "x")]) }}
{{ to.table(grid) }}{% endcall %}"""


def shown(markdown: str) -> list[str]:
    """The lines of text of a page; an element that only a mark makes is kept as its tag."""
    html = MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(markdown)
    plain = re.sub(r"</?(h1|p|ul|li|table|thead|tbody|tr|t[hd])( [^>]*)?>", "", html)
    return [unescape(line).strip() for line in plain.splitlines() if line.strip()]


@pytest.mark.parametrize("text", TEXTS)
def test_markdown_shows_text_as_it_was_written(tmp_path: Path, text: str) -> None:
    line = " ".join(text.replace("\x1b[31m", "").replace("\x1b[0m\x00", "").split())
    (tmp_path / "parts.j2").write_text(PARTS)
    grid = Grid.of(["a", "b"], [[text, text]])
    found = render(tmp_path / "parts.j2", layout="markdown.j2", title=text, text=text, grid=grid)
    assert shown(found) == [line, line, line, line, f"{line}: x", "a", "b", line, line]
