"""Speed and memory, compared with plain reference code that is timed in turn with ours.

A size and a device go in, a table and a JSON file come out. Everything but the preparation of a
corpus needs only torch, lightning and this project: a copy of the tree runs on any machine.
"""
