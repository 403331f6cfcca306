"""A W&B workspace with the panels of a report."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ablations.files import FIGURES
from experiments.wandb_runs import STEP
from transformer.files import write_atomically

# Keeps the address of the workspace, so that a later push updates it.
_ADDRESS_FILE = Path("wandb") / "workspace-url.txt"
_MANY = 100
# The title, the figure, the axis with its unit, and whether the figure's own axis is logarithmic.
_CURVES = (
    ("Validation perplexity", "valid_perplexity", STEP, "optimiser steps", True),
    ("Validation perplexity", "valid_perplexity", "tokens_seen", "target tokens", True),
    ("Training loss", "loss", STEP, "optimiser steps", False),
    ("Gradient norm", "gradient_norm", STEP, "optimiser steps", True),
)


@dataclass(frozen=True, slots=True)
class Subject:
    """What the workspace is about: a table or a search by its name, with the searched settings."""

    kind: Literal["table", "search"]
    name: str
    scale: str
    parameters: tuple[str, ...] = ()


def save_workspace(root: Path, subject: Subject, entity: str, project: str) -> str:
    """Create the workspace, or update the one that an earlier call made; its address."""
    from wandb_workspaces import expr
    from wandb_workspaces.workspaces import RunsetSettings, Workspace

    kept = root / _ADDRESS_FILE
    url = kept.read_text(encoding="utf-8").strip() if kept.is_file() else ""
    found: Any = Workspace(entity=entity, project=project, name=f"{subject.name}-{subject.scale}")
    if f"/{entity}/{project}?" in url:
        with suppress(ValueError):  # removed meanwhile
            found = Workspace.from_url(url)
    found.sections = _sections(root, subject)
    # The runs of this table or search only, those of a table grouped by row.
    of_subject = expr.Config(subject.kind) == subject.name
    found.runset_settings = RunsetSettings(
        filters=[of_subject, expr.Config("scale") == subject.scale],
        groupby=[expr.Config("row")] if subject.kind == "table" else [],
    )
    found.save()
    write_atomically(kept, f"{found.url}\n")
    return found.url


def _sections(root: Path, subject: Subject) -> list[Any]:
    """Results, learning curves, cost, and the figures of the report where it has been written."""
    from wandb_workspaces.reports import v2
    from wandb_workspaces.workspaces import Section

    key = v2.Config("row" if subject.kind == "table" else "trial")

    def bars(*names: str) -> list[Any]:
        """A bar for each row or trial, the mean over its seeds."""
        return [
            v2.BarPlot(
                title=name.replace("_", " "),
                metrics=[name],
                groupby=key,
                groupby_aggfunc="mean",
                groupby_rangefunc="minmax",
                max_bars_to_show=_MANY,
            )
            for name in names
        ]

    curves: list[Any] = [
        v2.LinePlot(
            title=title,
            x=axis,
            y=[name],
            title_x=unit,
            log_y=log,
            groupby=key,
            max_runs_to_show=_MANY,
        )
        for title, name, axis, unit, log in _CURVES
    ]
    results = (
        _settings(subject) if subject.kind == "search" else _results(bars("perplexity", "bleu"))
    )
    sections = [
        Section(name="Results", panels=results, is_open=True),
        Section(name="Learning curves", panels=curves, is_open=True),
        Section(name="Cost", panels=bars("tokens_per_second", "train_seconds")),
    ]
    figures = [f"{FIGURES}/{path.stem}" for path in sorted((root / FIGURES).glob("*.png"))]
    if figures:
        browser = v2.MediaBrowser(title="Figures of the report", media_keys=figures)
        sections.append(Section(name="Report", panels=[browser]))
    return sections


def _results(bars: list[Any]) -> list[Any]:
    """Each row's figures, ours against the paper's, and the table."""
    from wandb_workspaces.reports import v2

    against_paper = [
        v2.ScatterPlot(
            title=f"{label}, ours against the paper's",
            x=v2.SummaryMetric(f"paper/{name}"),
            y=v2.SummaryMetric(name),
        )
        for name, label in (("perplexity", "Perplexity"), ("bleu", "BLEU"))
    ]
    return [*bars, *against_paper, v2.WeavePanelSummaryTable(table_name="table")]


def _settings(subject: Subject) -> list[Any]:
    """How the searched settings and the perplexity go together."""
    from wandb_workspaces.reports import v2

    value = v2.SummaryMetric("valid_perplexity")
    axes = [*map(v2.Config, subject.parameters), value]
    return [
        v2.ParallelCoordinatesPlot(
            columns=[v2.interface.ParallelCoordinatesPlotColumn(metric=x) for x in axes]
        ),
        v2.ParameterImportancePlot(with_respect_to="valid_perplexity"),
        *(v2.ScatterPlot(title=x, x=v2.Config(x), y=value) for x in subject.parameters),
    ]
