"""Llama's changes with relative positions, for ``multi30k_modern``."""

from transformer.variants.modern import ModernTransformer
from transformer.variants.positions import RelativeAttention


class ModernRelativeTransformer(ModernTransformer):
    """Learned relative positions in place of rotary ones, which gain less in ``since``."""

    self_attention = RelativeAttention
