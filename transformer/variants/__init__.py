"""Changes to the paper's model since 2017; docs/variants.md shows how to write one."""
