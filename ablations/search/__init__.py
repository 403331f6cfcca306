"""Hyperparameter search.

A file that declares a search space imports these names.
"""

from ablations.search.space import Hyperparameter, Space, choice, uniform, whole
from ablations.tables.scale import Scale, scale

__all__ = ["Hyperparameter", "Scale", "Space", "choice", "scale", "uniform", "whole"]
