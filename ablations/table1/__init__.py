"""Table 1 of the paper, measured."""
