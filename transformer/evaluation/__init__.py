"""Scores, parameters and FLOPs of a model.

A model and text, or only a configuration, enter; numbers leave. ``counts`` imports no torch.
"""
