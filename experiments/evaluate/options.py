"""Settings of one evaluation or translation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True, slots=True)
class DecodingOptions:
    """The settings that may differ from the run's own; None keeps the run's."""

    average: int | None = None
    """last checkpoints to average [default: the experiment's]"""

    engine: Literal["torch", "ctranslate2"] = "torch"
    """what decodes"""

    beam_size: int | None = None
    """1 is greedy [default: the experiment's]"""

    length_penalty: float | None = None
    """alpha of the paper's formula [default: the experiment's]"""
