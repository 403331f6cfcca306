"""Hyper-parameter search.

A space and a scale enter; trials, ``best.json`` and a report leave. A user's own file imports what
it needs to declare a space from here.
"""

from ablations.search.space import Parameter, Space, choice, uniform, whole
from ablations.tables.scale import Scale, scale

__all__ = ["Parameter", "Scale", "Space", "choice", "scale", "uniform", "whole"]
