"""Declarations of corpora, as data: translations, treebanks, a user's own files.

A declaration names each text's location and checksum; nothing is read or fetched here.
"""
