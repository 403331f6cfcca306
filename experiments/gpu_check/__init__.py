"""A GPU checked in one call: does it compute what the CPU computes, and how fast?

A device and a limit of time go in; JSON and a Markdown table come out, after each part. It needs
torch, lightning and a copy of the tree. ``parts`` lists what is done, ``check`` does it.
"""
