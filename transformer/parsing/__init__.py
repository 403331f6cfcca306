"""Constituency trees: read, written as lines, decoded and scored.

``trees`` are read from ``treebanks`` and written as lines, which a model learns like the sentences
of a language. The ``constraint`` lets a search write nothing else, and ``evalb`` scores them.
"""
