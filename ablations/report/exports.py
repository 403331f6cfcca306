"""The table as LaTeX and as CSV."""

from __future__ import annotations

import csv
import io

from ablations.report.cells import label, setting
from ablations.report.grids import group_starts, our_parameters, our_score, paper_score
from ablations.report.layout import TEMPLATES, render
from ablations.report.numbers import RowNumbers, TableNumbers
from transformer import formats

_SYMBOLS = {
    "num_layers": "$N$",
    "d_model": r"$d_{\text{model}}$",
    "d_ff": r"$d_{\text{ff}}$",
    "num_heads": "$h$",
    "d_k": "$d_k$",
    "d_v": "$d_v$",
    "dropout": r"$P_{\mathit{drop}}$",
    "label_smoothing": r"$\epsilon_{\mathit{ls}}$",
    "max_steps": "steps",
}
_SPECIAL = str.maketrans(
    {
        **{character: f"\\{character}" for character in "&%$#_{}"},
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "±": r"$\pm$",
        "\N{MINUS SIGN}": "$-$",
        formats.MISSING: "--",
        "∞": r"$\infty$",
        "ε": r"$\epsilon$",
    }
)
_OF_RESULT = (
    *("seed", "perplexity", "bleu", "tokenised_bleu", "test_perplexity", "test_bleu", "f1"),
    *("test_f1", "parameters", "steps", "target_tokens", "flops", "train_seconds"),
    *("tokens_per_second", "device", "precision", "commit"),
)


def to_latex(table: TableNumbers) -> str:
    """A ``tabular`` for ``\\input``, which needs booktabs and amsmath; blanks are the base's."""
    return render(
        TEMPLATES / "table.tex.j2",
        title=f"{table.plan.title}, scale {table.plan.scale}".replace("\n", " "),
        settings=[_SYMBOLS.get(name, _escape(label(name))) for name in table.settings],
        figures=[*(measure.short for measure in table.measures), "params"],
        is_compared=table.plan.is_compared,
        rows=[[_escape(cell) for cell in _cells(table, row)] for row in table.rows],
        starts=group_starts(table),
    )


def _cells(table: TableNumbers, row: RowNumbers) -> list[str]:
    cells = [row.name]
    for name in table.settings:
        is_shown = row.is_base or name in row.changed
        cells.append(setting(name, row.settings[name]) if is_shown else "")
    pairs = [(our_score(score, row), paper_score(score)) for score in row.scores.values()]
    pairs.append((our_parameters(row), str(row.reported.parameters_millions or "")))
    return cells + [cell for pair in pairs for cell in pair[: 1 + table.plan.is_compared]]


def _escape(text: str) -> str:
    return text.translate(_SPECIAL)


def to_csv(table: TableNumbers) -> str:
    """A line for each finished run, with its settings, figures and cost, and the paper's."""
    settings = table.plan.shown
    quoted = table.plan.measures if table.plan.is_compared else ()
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["row", *settings, *_OF_RESULT, *(f"paper_{name}" for name in quoted)])
    for row in table.rows:
        declared = [row.settings[name] for name in settings]
        paper = [row.scores[name].paper for name in quoted]
        for result in row.results:
            found = [getattr(result, name) for name in _OF_RESULT]
            writer.writerow([row.name, *declared, *found, *paper])
    return text.getvalue()
