"""The plain code does the same work: the same model except for biases, the same search."""

from __future__ import annotations

import dataclasses

import torch

from experiments.benchmark.plain import PlainTransformer, plain_beam_search
from experiments.benchmark.timing import in_turn, ratio_of
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


def test_a_wider_beam_finds_nothing_less_likely() -> None:
    torch.manual_seed(3)
    model = PlainTransformer(dataclasses.replace(CONFIG, vocab_size=11)).eval()
    src = torch.tensor([[5, 7, 4, EOS_ID]])

    def log_p(tokens: list[int]) -> float:
        tgt = torch.tensor([[BOS_ID, *tokens]])
        with torch.no_grad():
            every = model(src, tgt[:, :-1]).log_softmax(-1)
        return every.gather(2, tgt[:, 1:, None]).sum().item()

    narrow, wide = ([*plain_beam_search(model, src, k, 3)[0]] for k in (1, 11**2))
    assert log_p(wide) >= log_p(narrow)


def test_functions_are_timed_in_turn_for_each_item() -> None:
    calls: list[tuple[str, int]] = []
    times = in_turn(
        range(3),
        lambda item: calls.append(("a", item)),
        lambda item: calls.append(("b", item)),
        device=torch.device("cpu"),
    )
    assert calls == [(name, item) for item in range(3) for name in "ab"]
    assert [len(seconds) for seconds in times] == [3, 3]


def test_a_ratio_is_the_median_over_the_turns() -> None:
    ratio = ratio_of([2.0, 40.0, 9.0, 5.0], [1.0, 10.0, 3.0, 1.0])
    assert ratio.median == 3.5 and ratio.low < 3 < 4 < ratio.high
    assert str(ratio_of([3.0], [2.0])) == "1.50 (1.50 to 1.50)"
