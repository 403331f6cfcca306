"""Reports, made from result files alone.

``numbers`` reads a table's files and computes all numbers once, by the formulas of ``statistics``.
Other modules make grids, sentences and plots of them, and ``layout`` writes the files with
templates. Searches and Table 1 have reports of the same layout.
"""
