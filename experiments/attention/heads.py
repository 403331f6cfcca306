"""Rank heads by what they attend to."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from transformer.evaluation.attention_weights import Attention, Kind

# As many words away count as far.
_FAR = 5
# How many heads are named for each measure.
_BEST = 3


@dataclass(frozen=True, slots=True)
class Ranked:
    """A head by its numbers, from 1, and the mean share of its weight."""

    layer: int
    head: int
    share: float

    def __str__(self) -> str:
        return f"layer {self.layer} head {self.head}: {100 * self.share:.0f} %"


def rank(kind: Kind, attention: Attention) -> dict[str, list[Ranked]]:
    """The heads that attend most to what each measure names, the best first.

    A head's share is the mean of its largest weight on one such word, over the words on the left
    that have one. Measures that no word has are left out.
    """
    found: dict[str, list[Ranked]] = {}
    for name, keys in _measures(kind, attention).items():
        shares = (attention.weights * keys).amax(-1).sum(-1) / keys.any(-1).sum()
        best = shares.flatten().sort(descending=True, stable=True).indices[:_BEST]
        places = [divmod(place, shares.size(1)) for place in best.tolist()]
        found[name] = [Ranked(x + 1, y + 1, shares[x, y].item()) for x, y in places]
    return found


def _measures(kind: Kind, attention: Attention) -> dict[str, Tensor]:
    """The keys that each measure counts, ``(queries, keys)``."""
    queries, keys = torch.arange(len(attention.queries)), torch.arange(len(attention.keys))
    # Keys of the decoder begin with the start of the sentence, the others end with its end.
    decoder = int(kind == "decoder")
    away = keys - decoder - queries[:, None]
    ends = keys.expand_as(away) == (0 if decoder else len(keys) - 1)
    words = ~ends & (away < 0) if decoder else ~ends
    measures = {
        "the word before": (away == -1) & words,
        "the word itself": (away == 0) & words,
        "the word after": (away == 1) & words,
        f"one word {_FAR} or more away": (away.abs() >= _FAR) & words,
        f"the {'start' if decoder else 'end'} of the sentence": ends,
    }
    return {name: counted for name, counted in measures.items() if counted.any()}
