"""A workspace of W&B, as code: the panels of a table's or a search's report over its runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from experiments.wandb_runs import STEP
from transformer.files import write_atomically

# Keeps the address of the workspace, so that a later push updates it.
_ADDRESS_FILE = Path("wandb") / "workspace-url.txt"
_MANY = 100


@dataclass(frozen=True, slots=True)
class Subject:
    """What the workspace is about: a table or a search by its name, with the searched settings."""

    kind: Literal["table", "search"]
    name: str
    scale: str
    parameters: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """The setting in W&B that tells the runs' rows or trials apart."""
        return "row" if self.kind == "table" else "trial"


def save_workspace(root: Path, subject: Subject, entity: str, project: str) -> str:
    """Create the workspace, or update the one that an earlier call made; its address."""
    from wandb_workspaces.workspaces import Workspace

    address = root / _ADDRESS_FILE
    panels: dict[str, Any] = {
        "sections": _sections(root, subject),
        "runset_settings": _runs(subject),
    }
    found = _earlier(address, entity, project)
    if found is None:
        name = f"{subject.name}-{subject.scale}"
        found = Workspace(entity=entity, project=project, name=name, **panels)
    else:
        for name, value in panels.items():
            setattr(found, name, value)
    found.save()
    write_atomically(address, f"{found.url}\n")
    return found.url


def _earlier(address: Path, entity: str, project: str) -> Any:
    """The workspace at the address that an earlier call kept; None if it is gone or elsewhere."""
    from wandb_workspaces.workspaces import Workspace

    url = address.read_text(encoding="utf-8").strip() if address.is_file() else ""
    if f"/{entity}/{project}?" not in url:
        return None
    try:
        return Workspace.from_url(url)
    except ValueError:  # removed meanwhile
        return None


def _runs(subject: Subject) -> Any:
    """The runs of this table or search only, grouped by row."""
    from wandb_workspaces import expr
    from wandb_workspaces.workspaces import RunsetSettings

    filters = [
        expr.Config(subject.kind) == subject.name,
        expr.Config("scale") == subject.scale,
    ]
    groups: list[Any] = [expr.Config("row")] if subject.kind == "table" else []
    return RunsetSettings(filters=filters, groupby=groups)


def _sections(root: Path, subject: Subject) -> list[Any]:
    from wandb_workspaces.reports.v2 import MediaBrowser
    from wandb_workspaces.workspaces import Section

    results = _results(subject) if subject.kind == "table" else _settings(subject)
    sections = [
        Section(name="Results", panels=results, is_open=True),
        Section(name="Learning curves", panels=_curves(subject), is_open=True),
        Section(name="Cost", panels=_bars(subject, "tokens_per_second", "train_seconds")),
    ]
    figures = [f"figures/{path.stem}" for path in sorted((root / "figures").glob("*.png"))]
    if figures:
        browser = MediaBrowser(title="Figures of the report", media_keys=figures)
        sections.append(Section(name="Report", panels=[browser]))
    return sections


def _results(subject: Subject) -> list[Any]:
    """Each row's figures, ours against the paper's, and the table."""
    from wandb_workspaces.reports.v2 import ScatterPlot, SummaryMetric, WeavePanelSummaryTable

    against_paper = [
        ScatterPlot(
            title=f"{label}, ours against the paper's",
            x=SummaryMetric(f"paper/{name}"),
            y=SummaryMetric(name),
        )
        for name, label in (("perplexity", "Perplexity"), ("bleu", "BLEU"))
    ]
    bars = _bars(subject, "perplexity", "bleu")
    return [*bars, *against_paper, WeavePanelSummaryTable(table_name="table")]


def _settings(subject: Subject) -> list[Any]:
    """How the searched settings and the perplexity go together."""
    from wandb_workspaces.reports.v2 import (
        Config,
        ParallelCoordinatesPlot,
        ParameterImportancePlot,
        ScatterPlot,
        SummaryMetric,
    )
    from wandb_workspaces.reports.v2.interface import ParallelCoordinatesPlotColumn

    value = SummaryMetric("valid_perplexity")
    axes = [*map(Config, subject.parameters), value]
    return [
        ParallelCoordinatesPlot(columns=[ParallelCoordinatesPlotColumn(metric=x) for x in axes]),
        ParameterImportancePlot(with_respect_to="valid_perplexity"),
        *(ScatterPlot(title=name, x=Config(name), y=value) for name in subject.parameters),
    ]


def _curves(subject: Subject) -> list[Any]:
    """Figures by step and, for the perplexity, by target tokens too."""
    from wandb_workspaces.reports.v2 import Config, LinePlot

    plots = (
        ("Validation perplexity", "valid_perplexity", STEP, "optimiser steps", True),
        ("Validation perplexity", "valid_perplexity", "tokens_seen", "target tokens", True),
        ("Training loss", "loss", STEP, "optimiser steps", False),
        ("Gradient norm", "gradient_norm", STEP, "optimiser steps", True),
    )
    return [
        LinePlot(
            title=title,
            x=axis,
            y=[name],
            title_x=unit,
            log_y=log,
            groupby=Config(subject.key),
            max_runs_to_show=_MANY,
        )
        for title, name, axis, unit, log in plots
    ]


def _bars(subject: Subject, *names: str) -> list[Any]:
    """A bar for each row or trial, the mean over its seeds."""
    from wandb_workspaces.reports.v2 import BarPlot, Config

    return [
        BarPlot(
            title=name.replace("_", " "),
            metrics=[name],
            groupby=Config(subject.key),
            groupby_aggfunc="mean",
            groupby_rangefunc="minmax",
            max_bars_to_show=_MANY,
        )
        for name in names
    ]
