"""Other feed-forward networks, norms and residual connections."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer.config import ModelConfig
from transformer.model.attention import MultiHeadAttention
from transformer.model.encoder_decoder import EncoderLayer, FeedForward, PostNorm, Transformer
from transformer.variant import replace_parts


class PreNorm(PostNorm):
    """x + Dropout(Sublayer(LayerNorm(x))), normalised once more after the last of a stack."""

    def __init__(self, config: ModelConfig, last: bool = False) -> None:
        super().__init__(config)
        self.last_norm = nn.LayerNorm(config.d_model) if last else nn.Identity()

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        return self.last_norm(x + self.dropout(sublayer(self.norm(x))))


class PreNormTransformer(Transformer):
    """Layer normalisation before each sub-layer (Xiong et al. 2020, figure 1b)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        replace_parts(self, PostNorm, lambda _: PreNorm(config))
        for stack in (self.encoder, self.decoder):
            stack[-1].feed_forward_norm = PreNorm(config, last=True)


class RMSNormTransformer(Transformer):
    """x / sqrt(mean(x^2) + eps) times a gain in place of LayerNorm (Zhang and Sennrich 2019)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        # LayerNorm's epsilon: the smallest float32, torch's default, is none in bf16.
        replace_parts(self, nn.LayerNorm, lambda _: nn.RMSNorm(config.d_model, eps=1e-5))


class DeepNorm(PostNorm):
    """LayerNorm(alpha x + Dropout(Sublayer(x))) (Wang et al. 2022, equation 1)."""

    def __init__(self, config: ModelConfig, alpha: float) -> None:
        super().__init__(config)
        self.alpha = alpha

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        return self.norm(self.alpha * x + self.dropout(sublayer(x)))


class DeepNormTransformer(Transformer):
    """DeepNorm with the alpha and beta of Wang et al. 2022, figure 2, for stacks of one depth."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        n = config.num_layers
        for layer in (*self.encoder, *self.decoder):
            alpha = 0.81 * n**0.3125 if isinstance(layer, EncoderLayer) else (3 * n) ** 0.25
            replace_parts(layer, PostNorm, lambda _, alpha=alpha: DeepNorm(config, alpha))

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Xavier's times beta for W^V, W^O and the feed-forward networks."""
        super().reset_parameters()
        n = self.config.num_layers
        for layer in (*self.encoder, *self.decoder):
            beta = 0.87 * n**-0.3125 if isinstance(layer, EncoderLayer) else (12 * n) ** -0.25
            for part in layer.modules():
                if isinstance(part, MultiHeadAttention):
                    part.key_value.weight[-part.num_heads * part.d_v :] *= beta
                    part.output.weight *= beta
                elif isinstance(part, FeedForward):
                    part.inner.weight *= beta
                    part.outer.weight *= beta


class ReZero(PostNorm):
    """x + alpha Dropout(Sublayer(x)), alpha from 0 on (Bachlechner et al. 2021, equation 1)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        del self.norm
        self.alpha = nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        return x + self.alpha * self.dropout(sublayer(x))


class ReZeroTransformer(Transformer):
    """A gate that opens during training in place of layer normalisation."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        replace_parts(self, PostNorm, lambda _: ReZero(config))


class Gelu(FeedForward):
    """GELU in place of ReLU (Hendrycks and Gimpel 2016)."""

    def forward(self, x: Tensor) -> Tensor:
        return self.outer(F.gelu(self.inner(x)))


class GeluTransformer(Transformer):
    """A GELU in every feed-forward network."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        replace_parts(self, FeedForward, lambda _: Gelu(config.d_model, config.d_ff))


class UnbiasedFeedForward(FeedForward):
    """max(0, xW1)W2 (Raffel et al. 2020)."""

    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__(d_model, d_ff)
        self.inner = nn.Linear(d_model, d_ff, bias=False)
        self.outer = nn.Linear(d_ff, d_model, bias=False)

    def reset_parameters(self) -> None:
        """Xavier-uniform weights."""
        nn.init.xavier_uniform_(self.inner.weight)
        nn.init.xavier_uniform_(self.outer.weight)


class UnbiasedTransformer(Transformer):
    """No biases, neither in feed-forward networks nor in layer normalisation."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        replace_parts(self, FeedForward, lambda _: UnbiasedFeedForward(config.d_model, config.d_ff))
        replace_parts(self, nn.LayerNorm, lambda _: nn.LayerNorm(config.d_model, bias=False))


class SwiGLU(UnbiasedFeedForward):
    """(Swish(xW) * xV)W2 with two thirds of d_ff, so about as many parameters (Shazeer 2020)."""

    def __init__(self, d_model: int, d_ff: int) -> None:
        width = 2 * d_ff // 3
        super().__init__(d_model, width)
        self.inner = nn.Linear(d_model, 2 * width, bias=False)

    def reset_parameters(self) -> None:
        """Xavier-uniform for each of the three matrices."""
        for weight in (*self.inner.weight.chunk(2), self.outer.weight):
            nn.init.xavier_uniform_(weight)

    def forward(self, x: Tensor) -> Tensor:
        gate, value = self.inner(x).chunk(2, dim=-1)
        return self.outer(F.silu(gate) * value)


class SwiGLUTransformer(Transformer):
    """A gated unit in every feed-forward network."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        replace_parts(self, FeedForward, lambda _: SwiGLU(config.d_model, config.d_ff))
