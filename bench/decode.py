"""Time beam search in turn with one without a cache."""

from __future__ import annotations

import torch

from bench.common import Numbers, Size, config_of, in_turn, ratio_of, run, workload
from bench.plain import PlainTransformer, plain_beam_search
from transformer.config import EOS_ID, DecodingConfig
from transformer.decoding import decode_sentences
from transformer.model.encoder_decoder import Transformer

_BEAM_SIZE = 4
# Word-pieces of a source with its end, and at most of a translation.
_SOURCE_LENGTH, _LENGTH = 15, 25
# Sentences per turn: the plain search takes many times as long for each.
_OURS = {"cpu": 256, "cuda": 3_003}
_PLAIN = {"cpu": 16, "cuda": 256}


def measure_decoding(size: Size, device: torch.device, turns: int) -> Numbers:
    """Decode the same kind of sentences in both ways; the ratio is of the times for a sentence."""
    config = config_of(size, workload(device)).model
    torch.manual_seed(1)
    ours, plain = Transformer(config).to(device).eval(), PlainTransformer(config).to(device).eval()
    count, plain_count = _OURS[device.type], _PLAIN[device.type]
    src = torch.randint(EOS_ID + 1, config.vocab_size, (count, _SOURCE_LENGTH))
    src[:, -1] = EOS_ID
    sources, plain_src = src.tolist(), src[:plain_count].to(device)
    decoding = DecodingConfig(beam_size=_BEAM_SIZE, max_extra_length=_LENGTH - _SOURCE_LENGTH)
    lengths: list[int] = []

    def decode(_: int) -> None:
        lengths.extend(len(found) for _, found in decode_sentences(ours, sources, decoding))

    def decode_plainly(_: int) -> None:
        plain_beam_search(plain, plain_src, _BEAM_SIZE, _LENGTH)

    in_turn([0], decode, decode_plainly, device=device)
    times, plain_times = in_turn(range(turns), decode, decode_plainly, device=device)
    return {
        "turns": turns,
        "beam_size": _BEAM_SIZE,
        "sentences": count,
        "mean_length": sum(lengths) / len(lengths),
        "sentences_per_second": turns * count / sum(times),
        "plain_sentences_per_second": turns * plain_count / sum(plain_times),
        "ratio": ratio_of([t / plain_count for t in plain_times], [t / count for t in times]),
    }


if __name__ == "__main__":
    run(measure_decoding, turns=5)
