"""Time training steps of a table's rows and its base."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ablations.tables.find import find_scale, load_table
from ablations.tables.plan import make_plan
from ablations.tables.scale import Scale
from ablations.tables.step_times import StepTimes
from ablations.tables.table import Table
from bench import end_in_one_line
from bench.common import Numbers, Ratio, in_turn, lines_of, ratio_of
from bench.workload import Workload, make_step
from experiments.devices import default_device, device_name
from experiments.records.provenance import commit
from transformer.errors import InputError
from transformer.kernels.threads import torch_threads
from transformer.training.method import make_module

_WARM_UP_STEPS = 2


@dataclass(frozen=True, slots=True)
class RowTimes:
    """The milliseconds of a step of the base, and each row's time as a multiple of it.

    Steps are timed in turn, on one thread. The base is also timed as a row, to show the noise.
    """

    device: str
    base: float
    ratios: Mapping[str, Ratio]

    def numbers(self) -> Numbers:
        """The numbers that are printed."""
        return {
            "device": self.device,
            "ms_per_step_of_the_base": self.base,
            "times_the_base": self.ratios,
        }

    def step_times(self, turns: int) -> StepTimes:
        """The times that a table's directory keeps."""
        medians = {row: ratio.median for row, ratio in self.ratios.items()}
        return StepTimes(device=self.device, commit=commit(), turns=turns, ratios=medians)


def time_rows(table: Table, scale: Scale, turns: int) -> RowTimes:
    """Time steps of each row in turn with the base's."""
    plan, device = make_plan(table, scale, table.run_rows, (1,)), default_device()
    base = plan.base
    load = Workload(
        text="multi30k",
        vocab_size=base.model.vocab_size,
        tokens_per_batch=base.data.tokens_per_batch,
    )
    configs = (base, *plan.configs.values())
    steps = [make_step(make_module(config).to(device)) for config in configs]
    with torch_threads(1):
        name = device_name()
        times = in_turn(load.batches(_WARM_UP_STEPS + turns, device), *steps, device=device)
    of_base, *of_rows = [each[_WARM_UP_STEPS:] for each in times]
    ratios = {row: ratio_of(each, of_base) for row, each in zip(plan.configs, of_rows, strict=True)}
    return RowTimes(name, 1e3 * statistics.median(of_base), ratios)


def main() -> None:
    """Time the rows of a table that the command names, and print the times."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", help="a name that ablations list prints, or a file")
    parser.add_argument("--scale", required=True, help="the scale of the table")
    turns = "number of timed turns (default: 40)"
    parser.add_argument("--turns", type=int, default=40, help=turns)
    words = "also write the times next to the runs of the table, for its report"
    parser.add_argument("--into", type=Path, metavar="DIRECTORY", help=words)
    given = parser.parse_args()
    if given.turns < 1:
        raise InputError(f"--turns is {given.turns}, but must be at least 1")
    chosen = load_table(given.table)
    print(f"rows, {given.table}, {given.scale}")
    times = time_rows(chosen, find_scale(chosen, given.scale), given.turns)
    for line in lines_of(times.numbers()):
        print(f"  {line}")
    if given.into is not None:
        times.step_times(given.turns).save(given.into)


if __name__ == "__main__":
    end_in_one_line(main)
