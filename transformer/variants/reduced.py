"""Fewer feed-forward networks, attentions, heads and layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, cast

from torch import Tensor, nn

from transformer.config import ModelConfig
from transformer.model.attention import MultiHeadAttention
from transformer.model.encoder_decoder import (
    DecoderLayer,
    EncoderLayer,
    FeedForward,
    PostNorm,
    Transformer,
)
from transformer.variant import replace_parts
from transformer.variants.layers import PreNorm


class LeftOut(PostNorm):
    """x, in place of a sub-layer with its dropout, addition and normalisation."""

    def __init__(self) -> None:
        nn.Module.__init__(self)

    def forward(self, x: Tensor, sublayer: object) -> Tensor:
        del sublayer
        return x


class NoAttention(MultiHeadAttention):
    """The attention of a sub-layer that is left out: no weights, and no keys and values."""

    def __init__(self) -> None:
        nn.Module.__init__(self)
        self.num_heads = self.d_k = self.d_v = 0

    def reset_parameters(self) -> None:
        """There are none."""

    def keys_values(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Nothing of ``(batch, keys, d_model)``: twice ``(batch, 1, 0, 1)``."""
        nothing = memory.new_empty(memory.size(0), 1, 0, 1)
        return nothing, nothing


class FewerNetworksTransformer(Transformer):
    """Feed-forward networks shared or left out (Pires et al. 2023, table 1).

    Args:
        encoder: ``own``, a network for each layer; ``shared``, one for all layers, and for both
            stacks if both have it; ``none``
        decoder: the same for the decoder
        wide: whether the shared network is as wide as those of all layers of both stacks together
            (section 4.3: the paper's number of parameters, if the decoder has none)
    """

    def __init__(
        self,
        config: ModelConfig,
        *,
        encoder: Literal["own", "shared", "none"] = "own",
        decoder: Literal["own", "shared", "none"] = "own",
        wide: bool = False,
    ) -> None:
        super().__init__(config)
        width = 2 * config.num_layers * config.d_ff if wide else config.d_ff
        shared = FeedForward(config.d_model, width)
        for stack, networks in ((self.encoder, encoder), (self.decoder, decoder)):
            for layer in stack:
                if networks == "shared":
                    layer.feed_forward = shared
                elif networks == "none":
                    replace_parts(layer, FeedForward, lambda _: nn.Identity())
                    layer.feed_forward_norm = LeftOut()


class FewerAttentionsTransformer(Transformer):
    """Attention left out of a stack, or between the stacks (Domhan 2018).

    Args:
        encoder: whether the encoder has self-attention
        decoder: whether the decoder has self-attention
        cross: the layers of the decoder that attend to the encoder's output, all or the last one
    """

    def __init__(
        self,
        config: ModelConfig,
        *,
        encoder: bool = True,
        decoder: bool = True,
        cross: Literal["all", "last"] = "all",
    ) -> None:
        super().__init__(config)
        without = [*(() if encoder else self.encoder), *(() if decoder else self.decoder)]
        for layer in without:
            layer.self_attention, layer.self_attention_norm = NoAttention(), LeftOut()
        for layer in self.decoder[:-1] if cross == "last" else ():
            layer.cross_attention, layer.cross_attention_norm = NoAttention(), LeftOut()


class OneHeadTransformer(Transformer):
    """One head in the encoder, in the decoder's self-attention or in cross-attention.

    The head is as wide as all of the others' together, as in row A of table 3, so that there are as
    many parameters; in Michel et al. 2019, one of a trained model's heads is left, with its d_k.
    """

    def __init__(
        self, config: ModelConfig, *, part: Literal["encoder", "decoder", "cross"] = "encoder"
    ) -> None:
        super().__init__(config)
        d_k, d_v = config.num_heads * config.d_k, config.num_heads * config.d_v
        for layer in self.encoder if part == "encoder" else self.decoder:
            one_head = MultiHeadAttention(config.d_model, 1, d_k, d_v)
            if part == "cross":
                cast(DecoderLayer, layer).cross_attention = one_head
            else:
                layer.self_attention = one_head


class DepthsTransformer(Transformer):
    """Stacks of ``encoder`` and ``decoder`` layers, whatever N is (Kasai et al. 2021)."""

    def __init__(self, config: ModelConfig, *, encoder: int = 6, decoder: int = 6) -> None:
        super().__init__(config)
        if min(encoder, decoder) < 1:
            raise ValueError(f"{encoder} and {decoder} layers: each stack needs at least one")
        layers = nn.ModuleList(EncoderLayer(config) for _ in range(encoder))
        self.encoder = cast(Sequence[EncoderLayer], layers)
        layers = nn.ModuleList(DecoderLayer(config) for _ in range(decoder))
        self.decoder = cast(Sequence[DecoderLayer], layers)


class PreNormDepthsTransformer(DepthsTransformer):
    """The same stacks with pre-norm, with which deep ones train (Xiong et al. 2020)."""

    def __init__(self, config: ModelConfig, *, encoder: int = 6, decoder: int = 6) -> None:
        super().__init__(config, encoder=encoder, decoder=decoder)
        replace_parts(self, PostNorm, lambda _: PreNorm(config))
        for stack in (self.encoder, self.decoder):
            stack[-1].feed_forward_norm = PreNorm(config, last=True)
