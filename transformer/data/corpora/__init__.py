"""Declarations of corpora: location and checksum of each text."""
