"""Table 1 of the paper, measured: what layers of each type cost as length and width grow.

A directory and a device enter; ``measure`` times the layers of ``layers``, ``paths`` counts their
dependent steps, ``results`` keeps every measurement in one file, and ``report`` fits exponents to
them (``fit``) and sets them next to the paper's (``paper``).
"""
