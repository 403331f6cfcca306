"""The loop that one writes first, from torch's own parts: the benchmark's reference."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer.config import PAD_ID, Config
from transformer.data.batches import Batch
from transformer.model.embeddings import sinusoids


class PlainTransformer(nn.Module):
    """The same sizes from torch's own parts; h·d_k must be d_model, as those demand."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        model = config.model
        self.d_model = model.d_model
        self.embedding = nn.Embedding(model.vocab_size, model.d_model)
        nn.init.normal_(self.embedding.weight, std=model.d_model**-0.5)
        self.positions: Tensor
        self.register_buffer("positions", sinusoids(model.max_positions, model.d_model))
        self.dropout = nn.Dropout(model.dropout)
        self.transformer = nn.Transformer(
            model.d_model,
            model.num_heads,
            model.num_layers,
            model.num_layers,
            model.d_ff,
            model.dropout,
            batch_first=True,
        )

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        """Logits ``(batch, tgt, vocab_size)``."""
        padding = src.eq(PAD_ID)
        states = self.transformer(
            self._embed(src),
            self._embed(tgt),
            tgt_mask=nn.Transformer.generate_square_subsequent_mask(
                tgt.size(1), device=tgt.device, dtype=torch.bool
            ),
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
            tgt_is_causal=True,
        )
        return F.linear(states, self.embedding.weight)

    def _embed(self, tokens: Tensor) -> Tensor:
        embedded = self.embedding(tokens) * math.sqrt(self.d_model)
        return self.dropout(embedded + self.positions[: tokens.size(1)])


def plain_step(
    model: PlainTransformer, optimizer: torch.optim.Optimizer, batch: Batch, smoothing: float
) -> None:
    """One update."""
    logits = model(batch.src, batch.tgt[:, :-1])
    loss = F.cross_entropy(
        logits.flatten(0, 1),
        batch.tgt[:, 1:].flatten(),
        ignore_index=PAD_ID,
        label_smoothing=smoothing,
    )
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
