"""Llama's changes taken together (Touvron et al. 2023)."""

from __future__ import annotations

from torch import nn

from transformer.config import ModelConfig
from transformer.kernels.padded_matrix import PaddedMatrix
from transformer.model.encoder_decoder import Transformer
from transformer.variants.layers import PreNormTransformer, RMSNormTransformer, SwiGLUTransformer
from transformer.variants.positions import RotaryTransformer


class UntiedTransformer(Transformer):
    """The pre-softmax map has a matrix of its own; the embeddings stay shared."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.projection = PaddedMatrix(config.vocab_size, config.d_model)
        nn.init.normal_(self.projection.weight[: config.vocab_size], std=config.d_model**-0.5)

    @property
    def output(self) -> PaddedMatrix:
        """The matrix of the pre-softmax map."""
        return self.projection


# The last base replaces its parts first, so RMSNorm also takes the norms that pre-norm has added.
class ModernTransformer(
    UntiedTransformer,
    RotaryTransformer,
    SwiGLUTransformer,
    RMSNormTransformer,
    PreNormTransformer,
):
    """Pre-norm, RMSNorm, SwiGLU, rotary positions, no biases, untied embeddings."""
