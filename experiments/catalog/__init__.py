"""The experiments that can be named."""
