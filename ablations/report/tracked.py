"""A table's report as a W&B run."""

from __future__ import annotations

from pathlib import Path

from ablations.report.document import COST, compose
from ablations.report.summary import summarise


def track_report(root: Path) -> None:
    """Show the report of the table in ``root`` as a W&B table, in a run of its own.

    Raises:
        InputError: if a file there cannot be read.
    """
    from experiments.run.tracking import track_table  # which imports W&B

    summary = summarise(root)
    plan, document = summary.plan, compose(summary)
    figures = [
        f"{group} {name}".strip() for group in ("PPL", "BLEU") for name in document.figure_names
    ]
    columns = ["row", *document.setting_names, *figures, *document.extra_names, *COST, "state"]
    rows = [
        [x.name, *x.settings, *x.perplexity, *x.bleu, *x.extras, *x.cost, x.state]
        for x in document.lines
    ]
    config = {"study": plan.study, "table": plan.table, "scale": plan.scale}
    track_table(root, f"{plan.study}-table", columns, rows, config)
