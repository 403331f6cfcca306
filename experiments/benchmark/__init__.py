"""Speed beside plain reference code, the two in turn, so that a busy machine hits both.

Needs nothing but torch, lightning and this project: a copy of the tree runs on any machine.
"""
