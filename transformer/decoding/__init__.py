"""Beam search (section 6.1).

A model and encoded sources enter, word-piece ids leave. ``incremental`` runs the decoder position
by position, ``beams`` keeps the hypotheses, ``search`` drives both and forms the batches.
"""

from transformer.decoding.search import Constraint, beam_search, decode_sentences

__all__ = ["Constraint", "beam_search", "decode_sentences"]
