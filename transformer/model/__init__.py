"""The model of section 3: attention, feed-forward and embedding layers, and the two stacks.

Word-piece ids enter, logits or decoder states leave. It knows no data, loss or search; what is
tuned for speed comes from ``transformer.kernels``.
"""
