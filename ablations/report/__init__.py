"""A table's report from its result files alone.

``numbers`` reads the files and computes all numbers once, by the formulas of ``statistics`` and
``pooling``; ``grids`` and ``sentences`` put them into ``words``, which the templates lay out.
``layout`` and ``write`` serve the reports of searches and of Table 1 too.
"""
