"""``ablations plan``: the estimate of a table, and the speed that it is based on."""

from __future__ import annotations

import dataclasses
import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from ablations.cli import PROGRAM
from ablations.costs import measure
from ablations.costs.describe import describe_cost
from ablations.costs.estimate import TableCost, checkpoint_bytes, plan_table
from ablations.costs.speed import Timing, nominal_speed, predict, until_the_last
from ablations.runs.options import Places
from ablations.status.status import DirectoryReader
from ablations.tables.find import Selection, load_table
from ablations.tables.plan_file import claim_plan, load_plan
from ablations.tables.scales import PAPER
from ablations.tables.table import Cell
from ablations.tables.table3 import BASE, TABLE
from experiments.devices import nominal_peak
from experiments.records.ownership import claim
from experiments.records.progress import Progress, RunState
from experiments.records.result import save_result
from tests.ablations.samples import TINY, finish
from tests.ablations.status.samples import begin
from tests.samples import tiny
from transformer.config import Config, Corpus, Precision, override
from transformer.errors import InputError
from transformer.evaluation.counts import run_flops, step_flops
from transformer.training.module import TransformerModule

RESULTS = Path(__file__).parents[3] / "experiments" / "results"


def plan(table: str = "table3", scale: str = "paper", **words: Any) -> TableCost:
    places = {name: words.pop(name) for name in dataclasses.asdict(Places()) if name in words}
    where = {name: words.pop(name, None) for name in ("device", "devices")}
    return plan_table(table, Selection(scale=scale, **words), **where, places=Places(**places))


def claim_pair(root: Path, seeds: str) -> None:
    wanted = Selection(scale="tiny", seeds=seeds, rows="base,narrow")
    claim_plan(root, wanted.plan(load_table("pair.py"))[0])


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of the table pair.py with one finished run, seen from its parent's parent."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    (tmp_path / "pair.py").write_text("from tests.ablations.samples import SMALL_TABLE as TABLE")
    root = tmp_path / "runs/pair-tiny"
    claim_pair(root, "1,2")
    finish(root, Cell("base", 1))
    return root


def test_on_the_papers_devices_base_takes_half_a_day() -> None:
    found = plan(device="P100", devices=8, devices_per_trial=8, seeds="1,2", rows="big, base")
    base, big = found.rows
    assert base.seconds / 3_600 == pytest.approx(12, rel=0.02)
    # Section 5.2 has 3.5 days, as its big model reached half as much again of the peak.
    assert big.seconds / 86_400 == pytest.approx(3.5, rel=0.5)
    assert (found.runs, base.parameters) == (4, 63_045_632)
    assert found.seconds == pytest.approx(2 * (base.seconds + big.seconds))
    assert found.flops == pytest.approx(2 * (9.4e17 + 9.6e18), rel=0.01)
    assert found.device_seconds == pytest.approx(8 * found.seconds)
    # Five checkpoints of weights, and of both moments.
    assert base.disk_bytes == 63_045_632 * 20
    assert base.checkpoint_bytes == 63_045_632 * 60
    assert found.checkpoint_bytes == 2 * (base.checkpoint_bytes + big.checkpoint_bytes)
    assert found.disk_bytes == 2 * (base.disk_bytes + big.disk_bytes)
    # One run at a time: at most the moments of the larger one.
    assert found.peak_disk_bytes == found.disk_bytes + 2 * big.disk_bytes
    (line,) = (line for line in describe_cost(found) if line.startswith("disk: "))
    assert re.fullmatch(r"disk: .* in the end, at most .* in progress; .* --keep-checkpoints", line)


def test_a_small_run_takes_the_time_of_launches_start_and_scoring() -> None:
    found = plan(scale="quick", device="H100", seeds="1-3")
    base = next(row for row in found.rows if row.name == "base")
    assert base.seconds == pytest.approx(1_600 * 0.020 + 20)
    assert found.seconds == pytest.approx(3 * (19 * 52 + 116))


def test_runs_that_share_a_device_share_its_speed() -> None:
    alone = plan(device="H100", rows="base,big")
    shared = plan(device="H100", rows="base,big", trials_per_device=2)
    assert shared.at_once == 2
    for one, two in zip(alone.rows, shared.rows, strict=True):
        assert two.seconds - 20 == pytest.approx(2 * (one.seconds - 20))
    work = sum(row.seconds - 20 for row in alone.rows)
    assert shared.device_seconds == pytest.approx(work + 20)
    # Launches take CPU time, which runs on one GPU do not share.
    small = plan(scale="quick", device="H100", workers=4)
    assert small.rows[0].seconds == pytest.approx(52)


@pytest.mark.parametrize(
    ("words", "expected", "slowness"),
    [
        ({}, (2, 2), 1),
        ({"workers": 1}, (1, 1), 1),
        # Those that have finished took as long as they took, as many at a time.
        ({"workers": 4}, (2, 4), 1),
        ({"trials_per_device": 2}, (2, 4), 1),
        ({"devices_per_trial": 2}, (2, 1), 0.5),
        ({"devices": 8, "trials_per_device": 1}, (8, 8), 1),
        ({"seeds": "1", "rows": "base"}, (2, 1), 1),
    ],
)
def test_this_machine_is_divided_as_run_does(
    pair: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: dict[str, Any],
    expected: tuple[int, int],
    slowness: float,
) -> None:
    monkeypatch.setattr("ablations.runs.options.count_cores", lambda: 2)
    monkeypatch.setattr("ablations.costs.estimate.count_cores", lambda: 2)
    found = plan("pair.py", "tiny", **({"seeds": "1-4"} | words))
    assert (found.devices, found.at_once) == expected
    assert found.rows[0].seconds == pytest.approx(slowness * 61.5)


def test_finished_runs_are_preferred_to_a_measurement(pair: Path) -> None:
    found = plan("pair.py", "tiny", rows="base,narrow")
    base, narrow = found.rows
    assert base.seconds == pytest.approx(61.5)
    assert narrow.seconds == pytest.approx(61.5 * narrow.flops / base.flops)
    assert found.basis == "1 finished run in runs/pair-tiny"
    begin(pair, "base/seed-2", number=2).rename(pair / "base" / "seed-2")  # the other was copied
    claim_pair(pair, "1,2")
    result = dataclasses.replace(finish(pair, Cell("base", 2)), train_seconds=91.0)
    save_result(pair / "base" / "seed-2", result)
    assert plan("pair.py", "tiny", rows="base,narrow").rows[0].seconds == pytest.approx(91.0)


def test_runs_of_other_settings_are_named_and_not_left(pair: Path) -> None:
    base = Cell("base", 1)
    claim(base.directory(pair), load_plan(pair).experiment(base))
    other = "\nfrom dataclasses import replace\nfrom transformer.config import override\n"
    other += "TABLE = replace(TABLE, base=override(TABLE.base, adam_beta2=0.5))"
    Path("pair.py").write_text(Path("pair.py").read_text() + other)
    found = plan("pair.py", "tiny", device="H100")
    assert found.warnings[-1].startswith(
        "row base has changed since it was trained (training.adam_beta2: 0.98 -> 0.5), so"
    )
    assert {row.name: row.left for row in found.rows} == {"base": 0, "narrow": 1, "free": 1}


def test_what_cannot_be_planned(pair: Path) -> None:
    with pytest.raises(InputError, match=r"belongs to another table .*scale: 'tiny' -> 'quick'"):
        plan("pair.py", "quick", directory=pair)
    with pytest.raises(InputError, match="-per-trial is 3, but --devices is 2: raise --devices"):
        plan(devices=2, devices_per_trial=3)


def test_without_finished_runs_some_steps_are_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(measure, "_SECONDS", 0.01)
    found = plan(scale="quick", rows="base,C-N2,C-N8")
    assert found.basis == "a few steps of C-N2, base, C-N8, timed now"
    assert all(row.seconds > 20.5 for row in found.rows)  # how much more, the machine decides
    first, base, last = (row.memory_bytes or 0 for row in found.rows)
    assert 200e6 < base <= first <= last < 4e9  # of a process with torch
    monkeypatch.setattr(measure, "_CPU_TOKENS", 100)  # of a part of a batch it is not known
    found = plan(scale="quick", rows="base")
    assert found.rows[0].memory_bytes is None and "memory: not measured" in describe_cost(found)


def test_what_is_left_is_what_has_no_result(pair: Path) -> None:
    for seed, peak in ((1, 600_000_000), (2, 700_000_000)):
        result = dataclasses.replace(finish(pair, Cell("base", seed)), peak_memory_bytes=peak)
        save_result(Cell("base", seed).directory(pair), result)
    found = plan("pair.py", "tiny", seeds="1-3", rows="base,narrow", workers=1)
    base, narrow = found.rows
    assert (base.left, narrow.left, found.runs_left) == (1, 3, 4)
    assert (base.memory_bytes, narrow.memory_bytes) == (700_000_000, None)
    assert any(line.startswith("memory: the peak of a process") for line in describe_cost(found))
    assert found.seconds_left == pytest.approx(base.seconds + 3 * narrow.seconds)
    assert any(line.startswith("runs done: 2; left: 4, ") for line in describe_cost(found))
    # The same figures as status has of the runs that wait, one of them having just begun.
    claim_pair(pair, "1-3")
    begin(pair, "base/seed-3", Progress(stage=RunState.PREPARE, updated_at=time.time()))
    status = DirectoryReader(pair).read()
    assert status.seconds_left == pytest.approx(found.seconds_left)


def test_lines_and_json_have_all_of_the_estimate(capsys: pytest.CaptureFixture[str]) -> None:
    words = "table3 --scale paper --device P100 --devices 8 --devices-per-trial 2 --seeds 1,2,3"
    assert PROGRAM.run(["plan", *words.split()]) == 0
    printed = capsys.readouterr().out
    assert "\nthe scale: sizes undivided; 100,000 steps for the base's 100,000; it sets " in printed
    assert "20 rows by 3 seeds: 60 runs, 4 at a time on 8 devices (P100)" in printed
    assert "based on the paper's base model on P100, in proportion to its nominal peak" in printed
    assert "big     " in printed
    assert PROGRAM.run(["plan", *words.split(), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [found[x] for x in ("device", "devices", "at_once", "runs")] == ["P100", 8, 4, 60]
    assert found["rows"][0]["name"] == "base"


def test_a_checkpoint_is_the_weights_and_both_moments(tmp_path: Path, files_corpus: Corpus) -> None:
    config = tiny(files_corpus, vocab_size=4_096, d_model=64)
    module = TransformerModule(config)
    optimizer = module.configure_optimizers()["optimizer"]
    for parameter in module.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    torch.save([module.state_dict(), optimizer.state_dict()], tmp_path / "checkpoint")
    size = (tmp_path / "checkpoint").stat().st_size
    assert abs(checkpoint_bytes(config, 2) / (2 * size) - 1) < 0.05


def config(steps: int = 1_000, **changes: Any) -> Config:
    return override(TINY.apply(BASE), max_steps=steps, **changes)


def test_known_runs_predict_others_in_proportion() -> None:
    assert predict(config(), []) is None
    assert predict(config(3_000), [Timing(config(), 10.0)]) == pytest.approx(30.0)
    # A time of its own is not replaced by one that is fitted to all.
    known = [Timing(config(label_smoothing=x / 10), 10.0 + x) for x in (2, 3, 4)]
    assert [predict(timing.config, known) for timing in known] == [12.0, 13.0, 14.0]
    assert predict(config(), known) == pytest.approx(13.0)
    # Larger models that were faster predict no negative time.
    known = [Timing(config(), 20.0), Timing(config(d_ff=1_024), 10.0)]
    assert predict(config(d_ff=8_192), known) == pytest.approx(15.0)


def test_the_fixed_time_per_step_is_told_apart_from_the_time_per_flop() -> None:
    small, large = config(), config(d_ff=1_024)

    def seconds(c: Config) -> float:
        return c.training.max_steps * (0.01 + 1e-10 * step_flops(c))

    known = [Timing(c, seconds(c)) for c in (small, large)]
    other = config(2_000, d_ff=512)
    assert predict(other, known) == pytest.approx(seconds(other))


def test_waiting_runs_go_to_the_next_free_place() -> None:
    assert until_the_last([4.0], [10.0] * 3, places=2) == pytest.approx(20.0)
    assert until_the_last([4.0, 7.0], [], places=2) == 7.0


@pytest.mark.parametrize(
    ("name", "precision", "peak"),
    [
        ("H100", "fp32", 67e12),
        *((name, "auto", nominal_peak(name, "fp32")) for name in ("P100", "V100", "T4")),
    ],
)
def test_in_fp32_a_gpu_reaches_the_share_of_its_peak_that_the_papers_did(
    name: str, precision: Precision, peak: float
) -> None:
    given = override(config(), precision=precision)
    found = nominal_speed(name, {"base": given})
    assert found.device == name and found.basis.endswith(" TFLOP/s in fp32")
    # paper.md: 9.5e17 FLOPs of work where 12 hours of 8 P100 are 3.28e18 at their peak.
    share = run_flops(given) / found.known[0].seconds / peak
    assert share == pytest.approx(9.5e17 / 3.28e18, rel=0.01)


@pytest.mark.parametrize(("name", "slower"), [("h100", 1.0), ("A100", 989 / 312)])
def test_in_bf16_a_gpu_is_as_fast_as_was_measured(name: str, slower: float) -> None:
    lines = (RESULTS / "gpu-h200.jsonl").read_text(encoding="utf-8").splitlines()
    measured = {x["test"]: x.get("ms_per_step") for x in map(json.loads, lines) if "test" in x}
    found = nominal_speed(name, {row.name: TABLE.configure(row, PAPER) for row in TABLE.rows})
    assert found.basis.endswith(" TFLOP/s in bf16")
    for size, timing in (("base", found.known[0]), ("big", found.known[-1])):
        step = 1e3 * timing.seconds / timing.config.training.max_steps
        expected = measured[f"test_training.py::test_training[{size}]"]
        assert step == pytest.approx(slower * expected, rel=0.01)


@pytest.mark.parametrize(("name", "precision"), [("H10", "fp32"), ("P100", "bf16")])
def test_a_device_without_a_known_peak_is_refused(name: str, precision: Precision) -> None:
    with pytest.raises(InputError, match=f"no nominal peak of '{name}' in {precision} is known"):
        nominal_speed(name, {"base": override(config(), precision=precision)})
