"""The whole model (figure 1): two stacks, their masks, and the initialisation."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor, nn

from transformer.config import PAD_ID, ModelConfig
from transformer.model.attention import KeyValueCache, MultiHeadAttention
from transformer.model.embeddings import Embedding
from transformer.model.layers import DecoderLayer, EncoderLayer, FeedForward


def padding_mask(tokens: Tensor) -> Tensor:
    """Additive mask ``(batch, 1, 1, length)`` that hides padding, for any queries."""
    return _additive(tokens.eq(PAD_ID))[:, None, None, :]


def causal_mask(length: int, device: torch.device) -> Tensor:
    """Additive mask ``(length, length)`` that hides later positions (section 3.2.3).

    Padding lies behind all real positions, so it needs no mask of its own on this side.
    """
    return _additive(torch.ones(length, length, dtype=torch.bool, device=device).triu(1))


def _additive(hidden: Tensor) -> Tensor:
    return torch.zeros(hidden.shape, device=hidden.device).masked_fill_(hidden, -torch.inf)


@dataclasses.dataclass(slots=True)
class DecoderState:
    """What decoding carries from one position to the next.

    ``memory`` holds each decoder layer's projected keys and values of the encoder's output,
    ``caches`` those of the positions decoded so far. ``past_mask`` ``(batch, 1, beam, entries)``
    is 0 where a hypothesis descends from an entry of the caches, else -inf.
    """

    memory: list[tuple[Tensor, Tensor]]
    memory_mask: Tensor
    caches: list[KeyValueCache]
    past_mask: Tensor
    position: int = 0

    def select_hypotheses(self, parents: Tensor) -> None:
        """Go on with these hypotheses of each sentence, ``(batch, beam)``; some may be repeated."""
        index = parents[:, None, :, None].expand(-1, 1, -1, self.past_mask.size(3))
        self.past_mask = self.past_mask.gather(2, index)

    def select_sentences(self, rows: Tensor) -> None:
        """Keep these sentences, as indices into ``batch``."""
        self.memory = [_memory(k[rows], v[rows]) for k, v in self.memory]
        self.memory_mask = self.memory_mask.index_select(0, rows)
        self.past_mask = self.past_mask.index_select(0, rows)
        for cache in self.caches:
            cache.select(rows)

    def advance(self, beam: int) -> None:
        """Let each hypothesis descend from the entry that it is about to add."""
        own = _additive(~torch.eye(beam, dtype=torch.bool, device=self.past_mask.device))
        past = self.past_mask.expand(-1, -1, beam, -1)
        self.past_mask = torch.cat([past, own.expand(*past.shape[:3], beam)], dim=3)
        self.position += 1


def _memory(key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """Laid out as the products of every step read them."""
    return key.transpose(2, 3).contiguous().transpose(2, 3), value.contiguous()


class Transformer(nn.Module):
    """The encoder-decoder of section 3. Tokens are ids; 0 is padding."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = Embedding(config)
        self.encoder = nn.ModuleList(EncoderLayer(config) for _ in range(config.num_layers))
        self.decoder = nn.ModuleList(DecoderLayer(config) for _ in range(config.num_layers))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw all weights anew from torch's current generator."""
        for module in self.modules():
            if isinstance(module, MultiHeadAttention | FeedForward | Embedding):
                module.reset_parameters()

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        """Logits ``(batch, tgt, vocab_size)`` of the word-piece after each of ``tgt``."""
        return self.embedding.logits(self.states(src, tgt))

    def states(self, src: Tensor, tgt: Tensor) -> Tensor:
        """The decoder's output ``(batch, tgt, d_model)``, before the pre-softmax map.

        Args:
            src: ``(batch, src)``
            tgt: ``(batch, tgt)``, beginning with the begin-of-sentence id
        """
        mask = padding_mask(src)
        return self.decode(tgt, self.encode(src, mask), mask)

    def encode(self, src: Tensor, src_mask: Tensor) -> Tensor:
        """``(batch, src)`` to the memory ``(batch, src, d_model)``."""
        memory = self.embedding(src)
        for layer in self.encoder:
            memory = layer(memory, src_mask)
        return memory

    def decode(self, tgt: Tensor, memory: Tensor, memory_mask: Tensor) -> Tensor:
        """``(batch, tgt)`` to states ``(batch, tgt, d_model)``, all positions at once."""
        states = self.embedding(tgt)
        tgt_mask = causal_mask(tgt.size(1), tgt.device)
        for layer in self.decoder:
            states = layer(states, tgt_mask, memory, memory_mask)
        return states

    def start_decoding(self, src: Tensor) -> DecoderState:
        """Encode ``src`` ``(batch, src)`` and prepare to decode position by position."""
        mask = padding_mask(src)
        memory = self.encode(src, mask)
        layers = self._decoder_layers()
        return DecoderState(
            memory=[_memory(*layer.cross_attention.keys_values(memory)) for layer in layers],
            memory_mask=mask,
            caches=[KeyValueCache() for _ in layers],
            past_mask=mask.new_empty(src.size(0), 1, 1, 0),
        )

    def decode_step(self, tokens: Tensor, state: DecoderState) -> Tensor:
        """Logits ``(batch, beam, vocab_size)`` after one more word-piece of each hypothesis.

        Args:
            tokens: ``(batch, beam)``, the word-piece at ``state.position``; the state advances.
        """
        states = self.embedding.step(tokens, state.position)
        state.advance(tokens.size(1))
        layers = zip(self._decoder_layers(), state.caches, state.memory, strict=True)
        for layer, cache, memory in layers:
            states = layer.step(states, state.past_mask, cache, memory, state.memory_mask)
        return self.embedding.logits(states)

    def _decoder_layers(self) -> list[DecoderLayer]:
        return [layer for layer in self.decoder if isinstance(layer, DecoderLayer)]

    def num_parameters(self) -> int:
        """All trained numbers; the shared matrix counts once, and its padding not at all."""
        total = sum(parameter.numel() for parameter in self.parameters())
        return total - self.embedding.num_padding()


def count_parameters(config: ModelConfig, vocab_size: int | None = None) -> int:
    """The count without memory for the weights, at another ``vocab_size`` if one is given."""
    if vocab_size is not None:
        config = dataclasses.replace(config, vocab_size=vocab_size)
    with torch.device("meta"):
        return Transformer(config).num_parameters()
