"""The report of a table: a pure function of the result files in its directory.

``numbers`` reads the files and computes all numbers once, by the formulas of ``statistics`` and
``pooling``; ``grids``, ``verdicts`` and ``notes`` put them into words, which the templates lay out.
``layout`` and ``write`` serve the reports of searches and of Table 1 too.
"""
