"""A GPU checked in one call: does it compute what the CPU computes, and how fast?

A device and a time limit go in; JSON and a Markdown table come out, saved after each finding. It
needs torch, lightning and a copy of the tree. ``parts`` lists the parts, ``check`` runs them.
"""
