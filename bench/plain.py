"""Reference code made of torch's own parts."""

from __future__ import annotations

import math
import warnings

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bench.workload import Step
from transformer.config import BOS_ID, EOS_ID, PAD_ID, Config, ModelConfig
from transformer.data.batches import Batch
from transformer.model.embeddings import sinusoids
from transformer.training.precision import autocast


class PlainTransformer(nn.Module):
    """A Transformer of ``nn.Transformer``, which needs h·d_k to be d_model."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.d_model = config.d_model
        self.embedding = nn.Embedding(config.vocab_size, config.d_model)
        nn.init.normal_(self.embedding.weight, std=config.d_model**-0.5)
        self.positions: Tensor
        self.register_buffer("positions", sinusoids(config.max_positions, config.d_model))
        self.dropout = nn.Dropout(config.dropout)
        self.transformer = nn.Transformer(
            config.d_model,
            config.num_heads,
            config.num_layers,
            config.num_layers,
            config.d_ff,
            config.dropout,
            batch_first=True,
        )
        # Here, as a compiler cannot look into a filter that is set within a step.
        warnings.filterwarnings("ignore", message=".*nested tensors is in prototype")

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        """Logits ``(batch, tgt, vocab_size)``."""
        padding = src.eq(PAD_ID)
        return self.logits(self.decode(tgt, self.encode(src, padding), padding))

    def encode(self, src: Tensor, padding: Tensor) -> Tensor:
        """``(batch, src)`` to the memory ``(batch, src, d_model)``."""
        return self.transformer.encoder(self._embed(src), src_key_padding_mask=padding)

    def decode(self, tgt: Tensor, memory: Tensor, padding: Tensor) -> Tensor:
        """``(batch, tgt)`` to states ``(batch, tgt, d_model)``."""
        return self.transformer.decoder(
            self._embed(tgt),
            memory,
            tgt_mask=nn.Transformer.generate_square_subsequent_mask(
                tgt.size(1), device=tgt.device, dtype=torch.bool
            ),
            memory_key_padding_mask=padding,
            tgt_is_causal=True,
        )

    def logits(self, states: Tensor) -> Tensor:
        """``(..., d_model)`` to ``(..., vocab_size)``."""
        return F.linear(states, self.embedding.weight)

    def _embed(self, tokens: Tensor) -> Tensor:
        embedded = self.embedding(tokens) * math.sqrt(self.d_model)
        return self.dropout(embedded + self.positions[: tokens.size(1)])


def make_plain_step(config: Config, device: torch.device, compile: bool = False) -> Step:
    """A function that trains a plain model with one batch, with autocast as in our own step.

    Args:
        compile: whether to compile model and loss, for batches of any shape
    """
    model = PlainTransformer(config.model).to(device).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.98), fused=True)

    def loss_of(src: Tensor, inputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(
            model(src, inputs).flatten(0, 1),
            targets.flatten(),
            ignore_index=PAD_ID,
            label_smoothing=config.training.label_smoothing,
        )

    compute = torch.compile(loss_of, dynamic=True) if compile else loss_of

    def step(batch: Batch) -> None:
        with autocast(config, device):
            loss = compute(batch.src, batch.tgt[:, :-1], batch.tgt[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


@torch.inference_mode()
def plain_beam_search(
    model: PlainTransformer, src: Tensor, beam_size: int, length: int
) -> list[list[int]]:
    """Beam search that decodes the whole prefix at each of ``length`` steps; no length penalty.

    Args:
        src: ``(batch, src)``

    Returns:
        The best hypothesis of each source, up to its end of sentence.
    """
    batch = src.size(0)
    padding = src.eq(PAD_ID)
    memory = model.encode(src, padding).repeat_interleave(beam_size, dim=0)
    padding = padding.repeat_interleave(beam_size, dim=0)
    tgt = torch.full((batch * beam_size, 1), BOS_ID, device=src.device)
    scores = torch.full((batch, beam_size), -torch.inf, device=src.device)
    scores[:, 0] = 0.0
    first = torch.arange(batch, device=src.device).unsqueeze(1) * beam_size
    for _ in range(length):
        log_p = model.logits(model.decode(tgt, memory, padding)[:, -1]).log_softmax(-1)
        vocab_size = log_p.size(-1)
        # A finished hypothesis continues with ends only, at no cost.
        ended = tgt[:, -1].eq(EOS_ID)
        log_p[ended] = -torch.inf
        log_p[ended, EOS_ID] = 0.0
        totals = (scores.unsqueeze(2) + log_p.view(batch, beam_size, -1)).flatten(1)
        scores, index = totals.topk(beam_size, dim=1)
        parents = (first + index // vocab_size).flatten()
        tgt = torch.cat([tgt[parents], (index % vocab_size).view(-1, 1)], dim=1)
        if bool(tgt[:, -1].eq(EOS_ID).all()):
            break
    best: list[list[int]] = tgt.view(batch, beam_size, -1)[:, 0, 1:].tolist()
    return [tokens[: tokens.index(EOS_ID)] if EOS_ID in tokens else tokens for tokens in best]
