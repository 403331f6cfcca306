"""Changes to the paper's model since 2017: see docs/variants.md."""
