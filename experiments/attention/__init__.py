"""Attention of a trained run (figures 3 to 5).

A run and a sentence enter; a figure, or a page in which layers, heads and words are chosen,
leaves. ``heads`` joins word-pieces to words and ranks heads by what they do.
"""
