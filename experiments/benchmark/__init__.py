"""Speed and memory beside plain reference code, both in turn so that a busy machine slows both.

A size and a device go in, a table and a JSON file come out. Everything but the preparation of a
corpus needs only torch, lightning and this project: a copy of the tree runs on any machine.
"""
