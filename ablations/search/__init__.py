"""Hyper-parameter search.

A file that declares a space imports these names.
"""

from ablations.search.space import Parameter, Space, choice, uniform, whole
from ablations.tables.scale import Scale, scale

__all__ = ["Parameter", "Scale", "Space", "choice", "scale", "uniform", "whole"]
