"""Sentences laid end to end instead of padded.

All batches have one shape then. A model takes them in place of a padded tensor of ids. Its modules
see a batch of one long sentence; positions count within each sentence, and the mask of attention
keeps sentences apart.
"""

from __future__ import annotations

from typing import NamedTuple, cast

from torch import Tensor

from transformer.kernels.sentences import Sentences, positions


class PackedTokens(NamedTuple):
    """One side of a batch.

    Attributes:
        ids: ``(1, length)``
        sentence: ``(length,)``, the number of each token's sentence, int32
        offsets: ``(sentences + 1,)``, where each sentence begins, and the end, int32
        longest: the most tokens that a sentence may have
    """

    ids: Tensor
    sentence: Tensor
    offsets: Tensor
    longest: int

    @property
    def positions(self) -> Tensor:
        """``(length,)``, each token's position in its sentence."""
        return positions(self.sentence, self.offsets)

    def mask(self, causal: bool = False) -> Tensor:
        """The stand-in for the mask of these tokens' attention to each other."""
        side = self.sentence, self.sentence, self.offsets, self.offsets
        return cast(Tensor, Sentences(*side, causal))

    def mask_to(self, mask: Tensor) -> Tensor:
        """The mask of attention from these tokens to the keys of another mask."""
        keys = cast(Sentences, mask)
        return cast(
            Tensor, keys._replace(query_sentences=self.sentence, query_offsets=self.offsets)
        )
