"""Table 1 of the paper, measured: time, memory and steps of layers."""
