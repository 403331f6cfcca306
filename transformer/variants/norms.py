"""Other places of layer normalisation, and other norms."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer.config import ModelConfig
from transformer.kernels.key_value_cache import KeyValueCache
from transformer.model.embeddings import Embedding
from transformer.model.encoder_decoder import (
    DecoderLayer,
    EncoderLayer,
    Memory,
    Transformer,
)
from transformer.variant import replace_parts
from transformer.variants.layers import PreNorm, PreNormTransformer


def end_with_bottom(layer: EncoderLayer | DecoderLayer, bottom: Tensor, x: Tensor) -> Tensor:
    """LayerNorm(bottom + x + Dropout(FFN(x))), ``bottom`` being the input of the whole layer."""
    last = layer.feed_forward_norm
    return last.norm(bottom + x + last.dropout(layer.feed_forward(x)))


class B2TEncoderLayer(EncoderLayer):
    """Post-norm, with the layer's input added once more before its last norm."""

    def forward(self, src: Tensor, src_mask: Tensor) -> Tensor:
        x = self.self_attention_norm(src, lambda x: self.self_attention.within(x, src_mask))
        return end_with_bottom(self, src, x)


class B2TDecoderLayer(DecoderLayer):
    """Post-norm, with the layer's input added once more before its last norm."""

    def forward(
        self, tgt: Tensor, tgt_mask: Tensor, memory: Memory, cache: KeyValueCache | None = None
    ) -> Tensor:
        past = tgt_mask, cache
        x = self.self_attention_norm(tgt, lambda x: self.self_attention.within(x, *past))
        x = self.cross_attention_norm(x, lambda x: self.cross_attention(x, *memory))
        return end_with_bottom(self, tgt, x)


class B2TTransformer(Transformer):
    """A bottom-to-top connection in every layer (Takase et al. 2022, figure 1c).

    The weights start as the base's; the authors' code also divides them by the root of N.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        replace_parts(self, EncoderLayer, lambda _: B2TEncoderLayer(config))
        replace_parts(self, DecoderLayer, lambda _: B2TDecoderLayer(config))


class PeriNorm(PreNorm):
    """x + Dropout(LayerNorm(Sublayer(LayerNorm(x)))), normalised after the last of a stack."""

    def __init__(self, config: ModelConfig, last: bool = False) -> None:
        super().__init__(config, last)
        self.output_norm = nn.LayerNorm(config.d_model)

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        return super().forward(x, lambda normed: self.output_norm(sublayer(normed)))


class PeriNormTransformer(Transformer):
    """Layer normalisation before and after each sub-layer (Kim et al. 2025), not of embeddings."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        for stack in (self.encoder, self.decoder):
            for layer in stack:
                last = layer is stack[-1]
                layer.self_attention_norm = PeriNorm(config)
                if isinstance(layer, DecoderLayer):
                    layer.cross_attention_norm = PeriNorm(config)
                layer.feed_forward_norm = PeriNorm(config, last)


class ScaleNorm(nn.Module):
    """g x / |x| with one learned g, sqrt(d_model) at first (Nguyen and Salazar 2019, 2.2)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.tensor(width**0.5))

    def forward(self, x: Tensor) -> Tensor:
        return self.gain * F.normalize(x, dim=-1, eps=1e-5)


class FixNormEmbedding(Embedding):
    """Word-pieces of length 1, as they are looked up and in the pre-softmax map."""

    # In place of the parameter of this name, which is trained and saved.
    @property
    def weight(self) -> Tensor:  # pyright: ignore[reportIncompatibleVariableOverride]
        """``(rows, d_model)``, each row but those of padding divided by its length."""
        return F.normalize(cast(Tensor, self.__getattr__("weight")), dim=-1)

    def reset_parameters(self) -> None:
        """Draw the same weights as the base; their lengths only set how fast directions change."""
        for name, table in self.named_parameters():
            rows = self.vocab_size if name == "weight" else len(table)
            nn.init.normal_(table[:rows], std=self.d_model**-0.5)


class ScaleNormTransformer(PreNormTransformer):
    """Pre-norm with ScaleNorm, and FixNorm of the word-pieces (Nguyen and Salazar 2019)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        replace_parts(self, nn.LayerNorm, lambda _: ScaleNorm(config.d_model))
        self.embedding = FixNormEmbedding(config)
