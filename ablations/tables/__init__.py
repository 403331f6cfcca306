"""Ablation tables and their scales.

A file that declares a table imports these names.
"""

from ablations.tables.own_measures import measure
from ablations.tables.scale import Scale, scale
from ablations.tables.table import Table, row
from ablations.tables.table3 import BASE
from ablations.tables.tune import Tune

__all__ = ["BASE", "Scale", "Table", "Tune", "measure", "row", "scale"]
