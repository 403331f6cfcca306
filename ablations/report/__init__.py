"""A table's report from its result files alone.

``numbers`` reads the files and computes all numbers once, by the formulas of ``statistics``;
``grids``, ``sentences`` and ``figures`` show them, and ``layout`` writes the files by templates,
also those of the reports of searches and of Table 1.
"""
