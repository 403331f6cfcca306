"""Sinusoids, and embeddings that extend their table of them."""

from __future__ import annotations

import math

import torch

from tests.samples import TINY_MODEL
from transformer.model.embeddings import Embedding, sinusoids


def embedding() -> Embedding:
    module = Embedding(TINY_MODEL)
    module.reset_parameters()
    return module


def test_sinusoids_are_the_papers_formula_interleaved_and_exact_far_out() -> None:
    for start in (0, 99_991):
        table = sinusoids(101, 10, start=start)
        assert table.shape == (101, 10)
        for row in (0, 1, 7, 100):
            for i in range(5):
                angle = (start + row) / 10_000 ** (2 * i / 10)
                assert math.isclose(table[row, 2 * i], math.sin(angle), abs_tol=1e-6)
                assert math.isclose(table[row, 2 * i + 1], math.cos(angle), abs_tol=1e-6)


def test_dropout_is_on_the_sum_of_embedding_and_position() -> None:
    module = embedding()
    tokens = torch.tensor([[5, 60, 7]])
    plain = module(tokens)
    module.dropout.forward = lambda x: 3 * x
    torch.testing.assert_close(module(tokens), 3 * plain)


def test_sinusoids_move_with_the_module() -> None:
    """Otherwise a compiled step would copy them to the GPU."""
    module = embedding().to("meta")
    assert module.encode_positions(0, 3).is_meta
    tokens = torch.full((1, 97), 5, device="meta")
    assert module(tokens).is_meta  # extended


def test_a_table_extended_in_inference_mode_can_be_trained_with() -> None:
    module = embedding()
    with torch.no_grad():
        module.weight[5] = 0.0
    with torch.inference_mode():
        torch.testing.assert_close(module(torch.full((1, 97), 5))[0], sinusoids(97, 26))
    module(torch.full((1, 53), 5)).sum().backward()
    assert module.weight.grad is not None
