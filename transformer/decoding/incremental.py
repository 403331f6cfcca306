"""Decode one position at a time with a cache."""

from __future__ import annotations

import torch
from torch import Tensor

from transformer.config import BOS_ID, PAD_ID
from transformer.errors import InputError
from transformer.kernels.key_value_cache import KeyValueCache, in_aligned_rows, in_memory_order
from transformer.model.encoder_decoder import Transformer, additive_mask, evaluating, padding_mask

# A broken cache changes logits by about their own size, rounding by a hundred-thousandth.
_LARGEST_DIFFERENCE = 1e-3


class IncrementalDecoder:
    """The state of decoding ``src`` ``(batch, src)`` with ``beam`` hypotheses per sentence.

    Attributes:
        position: the position of the next word-piece
    """

    def __init__(self, model: Transformer, src: Tensor) -> None:
        self.position = 0
        self._model = model
        self._caches = [KeyValueCache() for _ in model.decoder]
        self._memory_mask = in_aligned_rows(padding_mask(src))
        memory = model.encode(src, self._memory_mask)
        self._memory = [
            _contiguous(*layer.cross_attention.keys_values(memory)) for layer in model.decoder
        ]
        # (batch, 1, beam, entries): 0 where a hypothesis descends from a cached entry, else -inf
        self._past_mask = self._memory_mask.new_empty(src.size(0), 1, 1, 0)
        self._own_mask = self._past_mask

    def step(self, tokens: Tensor) -> Tensor:
        """Logits ``(batch, beam, vocab_size)`` after one more word-piece of each hypothesis.

        Args:
            tokens: ``(batch, beam)``, the word-pieces at ``position``, which then advances
        """
        batch, beam = tokens.shape
        model = self._model
        states = model.embedding(tokens.reshape(-1, 1), self.position).view(batch, beam, -1)
        if self.position == 0:
            self._own_mask = additive_mask(~torch.eye(beam, dtype=torch.bool, device=tokens.device))
        # Each hypothesis descends from its parent's entries and from the one that it adds now.
        past = self._past_mask.expand(-1, -1, beam, -1)
        own = self._own_mask.expand(batch, 1, beam, beam)
        self._past_mask = in_aligned_rows(torch.cat([past, own], dim=3))
        self.position += 1
        for layer, cache, memory in zip(model.decoder, self._caches, self._memory, strict=True):
            projected = *memory, self._memory_mask
            states = layer(states, self._past_mask, projected, cache)
        return model.output.logits(states)

    def select_hypotheses(self, parents: Tensor) -> None:
        """Continue with these hypotheses of each sentence, ``(batch, beam)``; some may repeat."""
        index = parents[:, None, :, None].expand(-1, 1, -1, self._past_mask.size(3))
        self._past_mask = self._past_mask.gather(2, index)

    def select_sentences(self, rows: Tensor) -> None:
        """Keep these sentences, given as indices into ``batch``."""
        self._memory = [_contiguous(key[rows], value[rows]) for key, value in self._memory]
        self._memory_mask = in_aligned_rows(self._memory_mask.index_select(0, rows))
        self._past_mask = self._past_mask.index_select(0, rows)
        for cache in self._caches:
            cache.select(rows)


def _contiguous(key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """Laid out in memory as every step reads them."""
    return in_memory_order(in_memory_order(key).contiguous()), value.contiguous()


@torch.inference_mode()
def check_cache(model: Transformer) -> None:
    """Compare the logits of steps with a cache to those of whole sentences.

    Raises:
        InputError: if they differ, or the model replaces ``forward`` but not ``states``.
    """
    kind = type(model)
    if kind.forward is not Transformer.forward and kind.states is Transformer.states:
        raise InputError(f"{kind.__name__} replaces forward, which is not trained: replace states")
    device = model.embedding.weight.device
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(PAD_ID + 1, model.config.vocab_size, (2, 17), generator=generator)
    src, drawn = ids[:, :6].to(device), ids[:, 6:].to(device)
    src[1, 4:] = PAD_ID
    history = torch.full((2, 2, 1), BOS_ID, device=device)
    parents = torch.tensor([[1, 0], [0, 0]], device=device)
    with evaluating(model):
        decoder = IncrementalDecoder(model, src)
        for step in range(5):
            cached = decoder.step(history[:, :, -1]).flatten(0, 1)
            whole = model(src.repeat_interleave(2, 0), history.flatten(0, 1))[:, -1]
            error, largest = (cached - whole).abs().max(), whole.abs().max()
            if not error <= _LARGEST_DIFFERENCE * largest:  # all are 0 if the output starts at 0
                raise InputError(
                    f"{kind.__name__} gives other logits word by word than for the whole sentence "
                    f"(by {error / largest:.1%} at position {step}): docs/variants.md says what "
                    "its attention may rely on"
                )
            decoder.select_hypotheses(parents)
            history = history.gather(1, parents.unsqueeze(2).expand(-1, -1, step + 1))
            history = torch.cat([history, drawn[:, 2 * step : 2 * step + 2].unsqueeze(2)], dim=2)
