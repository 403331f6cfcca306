"""Embeddings and both kinds of positions."""

from __future__ import annotations

import dataclasses
import math

import torch
from torch import Tensor

from tests.samples import TINY_MODEL
from transformer.config import ModelConfig
from transformer.model.embeddings import Embedding, sinusoids

LEARNED = dataclasses.replace(TINY_MODEL, positions="learned")
D_MODEL, MAX_POSITIONS = TINY_MODEL.d_model, TINY_MODEL.max_positions


def embedding(config: ModelConfig) -> Embedding:
    module = Embedding(config)
    module.reset_parameters()
    return module


def encodings(module: Embedding, length: int) -> Tensor:
    """What is added at each position: the embedding of a zero vector."""
    with torch.no_grad():
        module.weight[5] = 0.0
    return module(torch.full((1, length), 5))[0]


def test_sinusoids_are_the_papers_formula_interleaved() -> None:
    table = sinusoids(101, 10)
    assert table.shape == (101, 10)
    for position in (0, 1, 7, 100):
        for i in range(5):
            angle = position / 10_000 ** (2 * i / 10)
            assert math.isclose(table[position, 2 * i], math.sin(angle), abs_tol=1e-6)
            assert math.isclose(table[position, 2 * i + 1], math.cos(angle), abs_tol=1e-6)


def test_sinusoids_are_exact_far_out() -> None:
    table = sinusoids(1, 6, start=99_991)
    assert math.isclose(table[0, 0], math.sin(99_991), abs_tol=1e-6)
    assert math.isclose(table[0, 3], math.cos(99_991 / 10_000 ** (2 / 6)), abs_tol=1e-6)


def test_dropout_is_on_the_sum_of_embedding_and_position() -> None:
    module = embedding(TINY_MODEL)
    tokens = torch.tensor([[5, 60, 7]])
    plain = module(tokens)
    module.dropout.forward = lambda x: 3 * x
    torch.testing.assert_close(module(tokens), 3 * plain)


def test_sinusoids_extend_beyond_max_positions() -> None:
    module = embedding(TINY_MODEL)
    for length in (MAX_POSITIONS, MAX_POSITIONS + 1, 97, 3):
        torch.testing.assert_close(encodings(module, length), sinusoids(length, D_MODEL))


def test_sinusoids_move_with_the_module() -> None:
    """Otherwise a compiled step would copy them to the GPU."""
    module = embedding(TINY_MODEL).to("meta")
    assert module.encode_positions(0, 3).is_meta
    tokens = torch.full((1, 97), 5, device="meta")
    assert module(tokens).is_meta  # extended


def test_a_table_extended_in_inference_mode_can_be_trained_with() -> None:
    module = embedding(TINY_MODEL)
    with torch.inference_mode():
        module(torch.full((1, 97), 5))
    module(torch.full((1, 53), 5)).sum().backward()
    assert module.weight.grad is not None


def test_both_tables_are_initialised_normal() -> None:
    config = ModelConfig(vocab_size=1_009, d_model=166, max_positions=401, positions="learned")
    module = embedding(config)
    assert module.positions is not None
    for table in (module.weight.detach(), module.positions.detach()):
        assert math.isclose(table.std(), 166**-0.5, rel_tol=0.02)
        assert abs(table.mean()) < 4.5 * 166**-0.5 / math.sqrt(table.numel())
        assert math.isclose((table * 166**0.5).pow(4).mean(), 3.0, rel_tol=0.05)  # kurtosis
