"""Other attention, in both stacks and between them."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer.config import ModelConfig
from transformer.model.attention import MultiHeadAttention
from transformer.model.encoder_decoder import Transformer
from transformer.variant import replace_parts


class GroupedAttention(MultiHeadAttention):
    """Heads in groups that share their keys and values (Ainslie et al. 2023)."""

    def __init__(self, config: ModelConfig, groups: int) -> None:
        super().__init__(config.d_model, config.num_heads, config.d_k, config.d_v)
        self.key_value = nn.Linear(config.d_model, groups * (self.d_k + self.d_v), bias=False)

    def attend(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
        size = self.num_heads // key.size(1)
        key, value = key.repeat_interleave(size, 1), value.repeat_interleave(size, 1)
        return super().attend(query, key, value, mask)


class GroupedQueryTransformer(Transformer):
    """Two heads of keys and values, each shared by half of the query heads."""

    groups = 2

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        groups = math.gcd(self.groups, config.num_heads)
        replace_parts(self, MultiHeadAttention, lambda _: GroupedAttention(config, groups))


class MultiQueryTransformer(GroupedQueryTransformer):
    """One head of keys and values for all query heads (Shazeer 2019)."""

    groups = 1


class QueryKeyNormAttention(MultiHeadAttention):
    """g cos(q, k) in place of q k^T / sqrt(d_k), g learned (Henry et al. 2020, equation 4)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config.d_model, config.num_heads, config.d_k, config.d_v)
        length = 64  # of long sentences; theirs is the 97.5th percentile of the training text
        self.scale = nn.Parameter(torch.tensor(math.log2(length**2 - length)))

    def attend(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
        query = F.normalize(query, dim=-1) * (self.scale * math.sqrt(self.d_k))
        return super().attend(query, F.normalize(key, dim=-1), value, mask)


class QueryKeyNormTransformer(Transformer):
    """Normalised queries and keys in every attention."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        replace_parts(self, MultiHeadAttention, lambda _: QueryKeyNormAttention(config))
