"""Changes to the paper's model since 2017.

``ablations/tables/since.py`` compares them; docs/variants.md shows how to write one.
"""
