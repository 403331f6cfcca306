"""Ablation tables and their scales.

A declaration and the seeds asked for enter; a plan leaves, which ``table.json`` keeps. A user's own
file imports what it needs to declare a table from here.
"""

from ablations.tables.scale import Scale, scale
from ablations.tables.table import Table, row
from ablations.tables.table3 import BASE

__all__ = ["BASE", "Scale", "Table", "row", "scale"]
