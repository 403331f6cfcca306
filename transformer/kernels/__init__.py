"""Fast training and decoding on a device.

Each module states the plain form that it equals, and its test compares the two; the model, the
loss and the search read as the paper and call these. Tensors in, tensors out.
"""
