"""Greedy and beam search (section 6.1)."""

from transformer.decoding.beams import length_penalty
from transformer.decoding.search import beam_search, decode_sentences, greedy_search

__all__ = ["beam_search", "decode_sentences", "greedy_search", "length_penalty"]
