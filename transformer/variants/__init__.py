"""Changes to the paper's model since 2017, each a subclass that replaces parts of it.

``ablations/tables/since.py`` compares them; docs/variants.md shows how to write one.
"""
