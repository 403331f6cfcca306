"""Scores, parameters and FLOPs of a model.

Each takes a model and text, or only a configuration. ``counts`` needs no torch.
"""
