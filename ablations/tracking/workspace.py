"""A W&B workspace with results, curves and a report's plots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ablations.files import FIGURES
from experiments.tracking import STEP, one_line
from transformer.errors import InputError
from transformer.files import read_text, within, write_atomically

# Keeps the address of the workspace, so that a later push updates it.
_ADDRESS_FILE = "wandb/workspace-url.txt"
_PERPLEXITY = "valid_perplexity"
_CURVES = {"Validation perplexity": _PERPLEXITY, "Training loss": "loss"}


def save_workspace(
    root: Path, labels: Mapping[str, str], parameters: Sequence[str], entity: str, project: str
) -> str:
    """Create the workspace, or update the one that an earlier call made; return its address.

    Args:
        labels: the labels of its runs: the table or the search, and the scale
        parameters: the names of a search's hyperparameters; empty for a table
    """
    from wandb_workspaces import expr
    from wandb_workspaces.workspaces import RunsetSettings, Workspace

    kept = within(root, _ADDRESS_FILE)
    url = read_text(kept).strip() if kept.is_file() else ""
    workspace: Any = Workspace(entity=entity, project=project, name="-".join(labels.values()))
    if f"/{entity}/{project}?" in url:
        with suppress(ValueError):  # the workspace was removed meanwhile
            workspace = Workspace.from_url(url)
    workspace.sections = sections_of(root, parameters)
    workspace.runset_settings = RunsetSettings(
        filters=[expr.Config(name) == value for name, value in labels.items()],
        groupby=[] if parameters else [expr.Config("row")],
    )
    try:
        workspace.save()
    except Exception as error:  # W&B's libraries raise many kinds
        refusal = f"W&B does not take the workspace of {entity}/{project}: {one_line(error)}"
        raise InputError(refusal) from error
    write_atomically(kept, f"{workspace.url}\n")
    return workspace.url


def sections_of(root: Path, parameters: Sequence[str]) -> list[Any]:
    """Sections for results, learning curves and, if it was written, a table report's plots."""
    from wandb_workspaces.reports import v2
    from wandb_workspaces.workspaces import Section

    results: Any = v2.WeavePanelSummaryTable(table_name="table")
    if parameters:
        axes = [*map(v2.Config, parameters), v2.SummaryMetric(_PERPLEXITY)]
        columns = [v2.interface.ParallelCoordinatesPlotColumn(metric=axis) for axis in axes]
        results = v2.ParallelCoordinatesPlot(columns=columns)
    curves: list[Any] = [
        v2.LinePlot(
            title=title,
            x=STEP,
            y=[name],
            title_x="optimizer steps",
            log_y=name == _PERPLEXITY,
            groupby=v2.Config("trial" if parameters else "row"),
            max_runs_to_show=100,
        )
        for title, name in _CURVES.items()
    ]
    sections = [
        Section(name="Results", panels=[results], is_open=True),
        Section(name="Learning curves", panels=curves, is_open=True),
    ]
    figures = [f"{FIGURES}/{path.stem}" for path in sorted(within(root, FIGURES).glob("*.png"))]
    if figures and not parameters:  # only a table has a W&B run that holds its plots
        report: Any = v2.MediaBrowser(title="Plots of the report", media_keys=figures)
        sections.append(Section(name="Report", panels=[report]))
    return sections
