"""Decoding and averaging: the effect of section 6.1's choices.

All rows share one training per seed. The base has the paper's choices for its base model: a beam of
4, an alpha of 0.6 and the last five checkpoints. ``plain`` has none of them.
"""

from __future__ import annotations

from dataclasses import replace

from ablations.tables.scale import Scale
from ablations.tables.scales import MEDIUM, QUICK, SMALL
from ablations.tables.table import Table, row
from ablations.tables.table3 import BASE
from transformer.config import override

# fmt: off
ROWS = (
    row("base"),

    row("beam-1",        beam_size=1),
    row("beam-2",        beam_size=2),
    row("beam-8",        beam_size=8),
    row("beam-16",       beam_size=16),

    row("alpha-0",       length_penalty=0.0),
    row("alpha-1",       length_penalty=1.0),
    # A wide beam prefers short translations, which alpha should prevent.
    row("beam-16-alpha-0", beam_size=16, length_penalty=0.0),

    row("average-1",     average_checkpoints=1),
    row("average-10",    average_checkpoints=10),
    row("average-20",    average_checkpoints=20),

    row("plain",         beam_size=1, length_penalty=0.0, average_checkpoints=1),
)
# fmt: on


def _with_checkpoints(scale: Scale) -> Scale:
    """The scale with checkpoints as far apart as the paper's."""
    # Ten minutes of twelve hours: five are the last 7.5 % of training, and 20 the last 30 %.
    apart = scale.steps(1_500)
    return replace(scale, settings={**scale.settings, "checkpoint_every_steps": apart})


TABLE = Table(
    name="decoding",
    title="Decoding and averaging: what section 6.1's choices bring",
    base=override(BASE, average_checkpoints=5, also_average=None),
    rows=ROWS,
    scales=tuple(map(_with_checkpoints, (QUICK, SMALL, MEDIUM))),
)
