"""Table 4 at ``small``, with four layers and 20,000 steps."""

from dataclasses import replace

from ablations.tables.table4 import SCALES
from ablations.tables.table4 import TABLE as TABLE4

(SMALL,) = (scale for scale in SCALES if scale.name == "small")
FOUR_LAYERS = replace(SMALL, name="four-layers", divide_layers=1, max_steps=20_000)
TABLE = replace(TABLE4, name="table4-four-layers", scales=(FOUR_LAYERS,))
