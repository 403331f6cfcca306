"""The panels of the values that runs log."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

from ablations.figures.curves import Curve, draw_curves
from ablations.figures.panels import MOST_RUNS, draw_panels, looks_of
from experiments.records.run import Run, read_run

_HEAD = "step,loss,train_perplexity,learning_rate,gradient_norm,valid_loss,valid_perplexity"


def logged(folder: Path, name: str, lines: list[str]) -> Run:
    directory = folder / name
    directory.mkdir(parents=True)
    (directory / "metrics.csv").write_text("\n".join([_HEAD, *lines]) + "\n")
    return read_run(directory, name)


def values(spec: dict[str, Any], mark: str) -> list[tuple[str, int, float]]:
    """The points of all layers with a mark: their run, step and value."""
    return [
        (record["run"], record["step"], record["value"])
        for each in spec["layer"]
        if each["mark"]["type"] == mark
        for record in each["data"]["values"]
    ]


def test_a_line_of_one_value_is_a_point(tmp_path: Path) -> None:
    long = logged(tmp_path, "a/seed-1", ["7,5.5,,0.1,2,,", "11,5.3,,0.2,3,,"])
    short = logged(tmp_path, "b/seed-1", ["7,5.9,,0.1,2,,"])
    loss = draw_panels([long, short])["loss"]
    assert values(loss, "point") == [("b/seed-1", 7, 5.9)]
    assert ("a/seed-1", 11, 5.3) in values(loss, "line")
    assert values(draw_panels([long])["loss"], "point") == []
    curve = Curve(row="a", seeds="1", points=((7, 90.0),))
    spec = draw_curves([curve], None, by_name=False)
    assert spec is not None
    (panel,) = spec["concat"]
    assert panel["layer"][-1]["mark"]["type"] == "point"


def test_the_rows_of_a_legend_are_in_the_tables_order() -> None:
    rows = ["h4", "h16", "deep"]
    curves = [Curve(row=row, seeds="1", points=((7, 90.0), (8, 80.0))) for row in rows]
    spec = draw_curves(curves, None, by_name=False)
    assert spec is not None
    (panel,) = spec["concat"]
    looks = panel["layer"][-1]["encoding"]
    assert looks["color"]["scale"]["domain"] == looks["strokeDash"]["scale"]["domain"] == rows


def test_a_panel_shows_what_its_axis_can(tmp_path: Path) -> None:
    lines = ["7,nan,,0.1,inf,,", "11,5.3,,0.2,0,,", "13,-0.5,,0.2,3,1,inf"]
    panels = draw_panels([logged(tmp_path, "a/seed-1", lines)])
    assert set(panels) == {"loss", "learning-rate", "gradient-norm"}
    assert [step for _, step, _ in values(panels["loss"], "line")] == [11, 13]
    assert values(panels["gradient-norm"], "line") == [("a/seed-1", 13, 3.0)]


def test_a_long_run_is_thinned_and_keeps_its_last_value(tmp_path: Path) -> None:
    run = logged(
        tmp_path, "a/seed-1", [f"{step},{9 - step / 1e4:.4f},,,,," for step in range(1009)]
    )
    points = values(draw_panels([run])["loss"], "line")
    assert points[-1][1] == 1008 and 100 < len(points) <= 200
    assert {after[1] - before[1] for before, after in pairwise(points)} == {6}


def test_each_run_has_a_look_of_its_own_in_all_panels(tmp_path: Path) -> None:
    lines = ["7,5.5,,0.1,2,,", "11,5.3,,0.2,3,,"]
    runs = [logged(tmp_path, f"row-{x}/seed-1", lines) for x in range(MOST_RUNS)]
    looks = looks_of(runs)
    assert len({(look.colour, look.is_dashed) for look in looks}) == MOST_RUNS
    for spec in draw_panels(runs).values():
        encoding = spec["layer"][0]["encoding"]
        colours, dashes = (encoding[x]["scale"] for x in ("color", "strokeDash"))
        assert colours["domain"] == dashes["domain"] == [look.name for look in looks]
        assert colours["range"] == [look.colour for look in looks]
