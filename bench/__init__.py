"""Speed and memory against plain code of torch's own parts.

Each script is one measurement, ``python -m bench.train`` for example, and times ours and the plain
code in turn, so that a busy machine slows both. None is part of the installed package.
"""
