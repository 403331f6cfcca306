"""Declarations of corpora, as data: WMT14, Multi30k, the built-in phrases, a user's own files.

A declaration names each text's location and checksum; nothing is read or fetched here.
"""
