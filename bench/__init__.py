"""Measure speed and memory against plain torch code.

The two take turns, so that a busy machine slows both. Each script is one measurement, for example
``python -m bench.train``; none is part of the installed package.
"""
