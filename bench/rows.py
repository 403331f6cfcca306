"""Time training steps of a table's rows in turn with its base."""

from __future__ import annotations

import argparse
import statistics

from ablations.tables.find import find_scale, load_table
from ablations.tables.plan import make_plan
from ablations.tables.scale import Scale
from ablations.tables.table import Table
from bench.common import Figures, in_turn, lines_of, ratio_of
from bench.workload import Workload, make_step
from experiments.devices import default_device, device_name
from transformer.kernels.threads import torch_threads
from transformer.training.method import make_module

_WARM_UP_STEPS = 2


def time_rows(table: Table, scale: Scale, turns: int) -> Figures:
    """The time of a step of each row, on one thread, as a multiple of the base's, which is also
    timed as a row to show the noise.
    """
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
    return {
        "device": name,
        "ms_per_step_of_the_base": 1e3 * statistics.median(of_base),
        "times_the_base": {
            row: ratio_of(each, of_base) for row, each in zip(plan.configs, of_rows, strict=True)
        },
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", help="a name that ablations list prints, or a file")
    parser.add_argument("--scale", required=True)
    parser.add_argument("--turns", type=int, default=40, help="that are timed (default: 40)")
    given = parser.parse_args()
    chosen = load_table(given.table)
    print(f"rows, {given.table}, {given.scale}")
    for line in lines_of(time_rows(chosen, find_scale(chosen, given.scale), given.turns)):
        print(f"  {line}")
