"""A GPU against the CPU, and the speed of the paper's models on it."""
