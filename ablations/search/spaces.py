"""The built-in search spaces, and those of users."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ablations.search.space import Space, choice, uniform, whole
from ablations.tables import table4
from transformer.errors import InputError, unknown_name
from transformer.files import load_file

# The bounds include what the built-in scales set, with room on either side.
BASE_LR = Space(
    name="base_lr",
    title="Learning rate and warm-up",
    parameters=(
        uniform("learning_rate_factor", 0.1, 4.0, log=True),
        whole("warmup_steps", 500, 40_000, log=True),
    ),
)

REGULARISATION = Space(
    name="regularisation",
    title="Dropout and label smoothing",
    parameters=(
        uniform("dropout", 0.0, 0.4),
        uniform("label_smoothing", 0.0, 0.3),
    ),
)

# Rows (A) to (C) of Table 3 vary the same settings, but one at a time and at any size.
SHAPE = Space(
    name="shape",
    title="Depth, widths and heads within the base's number of parameters",
    parameters=(
        choice("num_layers", 2, 4, 6, 8),
        choice("d_model", 256, 384, 512, 640, 768),
        choice("d_ff", 512, 1024, 2048, 3072, 4096),
        choice("num_heads", 1, 2, 4, 8, 16),
        choice("d_k", 16, 32, 64, 128, sets=("d_v",)),
    ),
    budget=1.0,
)

# What the paper tuned for parsing (section 6.3), without the beam, which is evaluate --beam-size.
PARSING = Space(
    name="parsing",
    title="Dropout and learning rate of a parser",
    parameters=(
        uniform("dropout", 0.0, 0.5),
        uniform("learning_rate_factor", 0.1, 4.0, log=True),
    ),
    base=table4.TABLE.base,
    scales=table4.SCALES,
)

SPACES = {space.name: space for space in (BASE_LR, REGULARISATION, SHAPE, PARSING)}


def load_space(name: str) -> Space:
    """The space of that name, or the ``SPACE`` of a file such as ``path/to/smoothing.py``."""
    if name.endswith(".py"):
        space = getattr(load_file(Path(name), "space"), "SPACE", None)
        if not isinstance(space, Space):
            raise InputError(f"{name} declares no SPACE = Space(…), see docs/search.md")
        folder = Path(name).parent
        return replace(space, scales=tuple(scale.anchored(folder) for scale in space.scales))
    if name not in SPACES:
        raise unknown_name("space", name, [*SPACES, "FILE.py"])
    return SPACES[name]
