"""The table of a report as LaTeX, in the style of the paper's."""

from __future__ import annotations

from ablations.report.details import label, setting
from ablations.report.results import group_starts, parameters, scores, shown_settings
from ablations.report.summary import RowSummary, Summary
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


def to_latex(summary: Summary) -> str:
    """A ``tabular`` for ``\\input``, which needs booktabs and amsmath; blanks are the base's."""
    compared, settings = summary.plan.is_compared, shown_settings(summary)
    figures = [*(measure.short for measure in summary.measures), "params"]
    width = 2 if compared else 1
    heads = ["row", *(_SYMBOLS.get(name, _escape(label(name))) for name in settings)]
    lines = [
        f"% {summary.plan.title}, scale {summary.plan.scale}".replace("\n", " "),
        "% \\usepackage{booktabs,amsmath}",
        f"\\begin{{tabular}}{{l{'c' * len(settings)}{'r' * width * len(figures)}}}",
        "\\toprule",
    ]
    if compared:
        spans = " & ".join(f"\\multicolumn{{2}}{{c}}{{{name}}}" for name in figures)
        lines.append(f"{'& ' * len(heads)}{spans} \\\\")
        figures = ["ours", "paper"] * len(figures)
    lines += [" & ".join([*heads, *figures]) + r" \\", "\\midrule"]
    starts = group_starts(summary)
    for index, row in enumerate(summary.rows):
        lines += ["\\midrule"] * (index in starts)
        cells = _cells(summary, row, settings, width)
        lines.append(" & ".join(map(_escape, cells)) + r" \\")
    return "\n".join([*lines, "\\bottomrule", "\\end{tabular}", ""])


def _cells(summary: Summary, row: RowSummary, settings: list[str], width: int) -> list[str]:
    cells = [row.row.name]
    cells += [
        setting(name, row.settings[name]) if row.is_base or name in row.changed else ""
        for name in settings
    ]
    for measure in summary.measures:
        cells += scores(summary, row, measure)[:width]
    return [*cells, *parameters(row)[:width]]


def _escape(text: str) -> str:
    return text.translate(_SPECIAL)
