"""From the texts of a corpus to a folder that training and evaluation read.

``prepare`` fetches, cleans, learns the vocabulary and encodes, on several processes and in chunks
that survive a kill; ``integrity`` checks the texts and the finished folder.
"""
