"""Proposals: one change after another against a base of ten seeds."""
