"""Speed and memory, ours in turn with plain code of torch.

In turn, so that a busy machine slows both. Each script is one measurement, for example ``python -m
bench.train``; none is part of the installed package.
"""
