"""The plain code does the same work: the same model except for biases, the same search."""

from __future__ import annotations

import torch

from bench.plain import PlainTransformer, plain_beam_search
from tests.samples import random_sentences
from transformer.config import BOS_ID, EOS_ID, ModelConfig
from transformer.evaluation.counts import count_parameters

CONFIG = ModelConfig(
    vocab_size=61, num_layers=2, d_model=24, d_ff=34, num_heads=4, d_k=6, d_v=6, dropout=0.0
)


def test_it_has_as_many_parameters_and_some_biases() -> None:
    plain = PlainTransformer(CONFIG)
    own = [p for name, p in plain.named_parameters() if "attn" in name]
    biases = sum(p.numel() for p in own if p.dim() == 1)
    last_norms = 2 * 2 * CONFIG.d_model
    parameters = sum(p.numel() for p in plain.parameters())
    assert parameters == count_parameters(CONFIG) + biases + last_norms


def test_a_beam_of_one_takes_the_likeliest_word_each_time() -> None:
    torch.manual_seed(3)
    model = PlainTransformer(CONFIG).eval()
    src = random_sentences([5, 9, 3])
    found = plain_beam_search(model, src, beam_size=1, length=7)
    for row, hypothesis in enumerate(found):
        tokens = [BOS_ID]
        source = src[row][src[row].ne(0)][None]
        with torch.no_grad():
            while len(tokens) <= 7 and tokens[-1] != EOS_ID:
                tokens.append(int(model(source, torch.tensor([tokens]))[0, -1].argmax()))
        assert hypothesis == [token for token in tokens[1:] if token != EOS_ID]
