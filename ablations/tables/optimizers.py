"""Optimizers in place of the paper's Adam.

Each row has the settings that its source recommends; other settings are the scale's.

``reference`` is what the source found against its own baseline, mostly AdamW or NAdamW with a
cosine, not the paper's Adam. AlgoPerf is MLCommons' benchmark of training algorithms, whose
workload "wmt" is a Transformer; its submissions and times of 2024 and later are public.

Methods with a recommended learning rate reach it at a ``learning_rate_factor`` of 1. Their rows
name that factor, since a scale may set another one.
"""

from __future__ import annotations

from dataclasses import replace

from ablations.tables.table import Table, claim, row
from ablations.tables.table3 import BASE
from ablations.tables.tune import Tune

# fmt: off
ROWS = (
    row("base"),
    # The paper's Adam, to tell the gain of a cosine from those of the optimizers that have one.
    row("adam-cosine", schedule="cosine"),
    # As in the table since, with the same runs (Loshchilov and Hutter 2019; Jordan et al. 2024).
    claim("adamw-cosine",  "better", method="optimizers:AdamW", schedule="cosine"),
    claim("muon",          "better", method="optimizers:Muon"),
    # Dozat 2016, against Adam. With a cosine it is AlgoPerf's baseline (Dahl et al. 2023).
    claim("nadamw-cosine", "better", method="nadam:NAdamW", schedule="cosine"),
    # Loshchilov and Hutter 2017. In "cyclic_lr", fourth of AlgoPerf's ranking of 2024, two of five
    # settings have two cycles, and three have one.
    claim("cyclic",        "better", method="nadam:CosineCycles"),
    # Defazio et al. 2024. It took 0.39 of the baseline's time in AlgoPerf's first logs of "wmt",
    # and 0.69 to 1.34 in later ones. Beta2 is that of the authors' submission.
    claim("schedule-free", "better", method="schedule_free:ScheduleFree", learning_rate_factor=1.0,
          adam_beta2=0.9955, adam_epsilon=1e-8),
    # Vyas et al. 2024, against AdamW and Shampoo. Shampoo took 0.94 of the time on "wmt".
    claim("soap",          "better", method="soap:Soap", schedule="cosine",
          learning_rate_factor=1.0, adam_beta1=0.95, adam_beta2=0.95, adam_epsilon=1e-8),
    # Chen et al. 2023, section 4.4: these betas, for language models, and the schedule of AdamW. On
    # AlgoPerf's "wmt" it took 1.04 times the baseline's time.
    claim("lion",          "better", method="lion:Lion", schedule="cosine", adam_beta1=0.95),
    # Kaddour 2022; on AlgoPerf's "wmt" 0.66 of the baseline's time.
    claim("latest-weights","better", method="averages:LatestWeights"),
)
# fmt: on

TABLE = Table(name="optimizers", title="Optimizers since 2017", base=BASE, rows=ROWS, tune=Tune())
# The same rows with the learning rates that their sources recommend.
UNTUNED = replace(TABLE, name="optimizers-untuned", title=f"{TABLE.title}, untuned", tune=None)
