"""Decoding: our beam search, and a plain one without a cache; the weights are untrained."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn.utils.rnn import pad_sequence

from experiments.benchmark.plain import PlainTransformer, plain_beam_search
from experiments.benchmark.timing import Ratio, Row, in_turn, ratio_of
from experiments.benchmark.workload import Size, config_of, workload
from transformer.config import EOS_ID, DecodingConfig
from transformer.decoding import decode_sentences
from transformer.model.encoder_decoder import Transformer

_BEAM_SIZE = 4
_SOURCE_LENGTH, _LENGTH = 15, 25
# Sentences per turn: the plain search takes many times as long for each.
_OURS = {"cpu": 256, "cuda": 3_003}
_PLAIN = {"cpu": 16, "cuda": 256}


@dataclass(frozen=True, kw_only=True, slots=True)
class DecodingSpeed:
    """Sentences per second: 15 word-pieces in, including the end, and at most 25 out.

    ``ratio`` is the time of the plain search for a sentence over ours.
    """

    rounds: int
    beam_size: int
    sentences: int
    mean_length: float
    sentences_per_second: float
    plain_sentences_per_second: float
    ratio: Ratio

    def rows(self) -> list[Row]:
        """What is printed."""
        ours, plain = self.sentences_per_second, self.plain_sentences_per_second
        name = f"decode, beam {self.beam_size}: sentences/s"
        return [(name, f"{ours:,.1f}", f"{plain:,.1f}", str(self.ratio))]


def measure_decoding(size: Size, device: torch.device, rounds: int) -> DecodingSpeed:
    """Decode the same kind of sentences in both ways, ``rounds`` times."""
    config = config_of(size, workload(device)).model
    torch.manual_seed(1)
    ours, plain = Transformer(config).to(device).eval(), PlainTransformer(config).to(device).eval()
    sentences, plain_sentences = _OURS[device.type], _PLAIN[device.type]
    sources = torch.randint(EOS_ID + 1, config.vocab_size, (sentences, _SOURCE_LENGTH)).tolist()
    sources = [[*source[:-1], EOS_ID] for source in sources]
    decoding = DecodingConfig(beam_size=_BEAM_SIZE, max_extra_length=_LENGTH - _SOURCE_LENGTH)
    lengths: list[int] = []

    def decode(_: int) -> None:
        found = decode_sentences(ours, sources, decoding)
        lengths.extend(len(hypothesis) for _, hypothesis in found)

    def decode_plainly(_: int) -> None:
        some = [torch.tensor(source) for source in sources[:plain_sentences]]
        src = pad_sequence(some, batch_first=True).to(device)
        plain_beam_search(plain, src, _BEAM_SIZE, _LENGTH)

    in_turn([0], decode, decode_plainly, device=device)
    lengths.clear()
    our_times, plain_times = in_turn(range(rounds), decode, decode_plainly, device=device)
    return DecodingSpeed(
        rounds=rounds,
        beam_size=_BEAM_SIZE,
        sentences=sentences,
        mean_length=sum(lengths) / len(lengths),
        sentences_per_second=rounds * sentences / sum(our_times),
        plain_sentences_per_second=rounds * plain_sentences / sum(plain_times),
        ratio=ratio_of(
            [t / plain_sentences for t in plain_times], [t / sentences for t in our_times]
        ),
    )
