"""How good a model is and what it costs: BLEU, perplexity, parses, parameters and FLOPs.

A model and text, or only a configuration, enter; numbers leave. ``counts`` imports no torch.
"""
