"""Measure the layers of the paper's Table 1."""
