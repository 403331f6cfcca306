"""The model of section 3.

Word-piece ids enter, logits or decoder states leave. It knows no data, loss or search; what is
tuned for speed comes from ``transformer.kernels``.
"""
