"""Dropout and the initialisation of the whole model."""

from __future__ import annotations

import dataclasses
import math

from tests.samples import TINY_MODEL, random_sentences, random_targets
from transformer.config import ModelConfig
from transformer.kernels.dropout import Dropout
from transformer.model.encoder_decoder import Transformer


def test_dropout_follows_every_sublayer_and_the_embedding() -> None:
    model = Transformer(dataclasses.replace(TINY_MODEL, dropout=0.2))
    rates = [module.p for module in model.modules() if isinstance(module, Dropout)]
    assert rates == [0.2] * (1 + TINY_MODEL.num_layers * (2 + 3))


def test_each_matrix_is_initialised_as_xavier_and_both_tables_normal() -> None:
    """Torch's default has the deviation 1 / sqrt(3 inputs). W_K and W_V are drawn separately."""
    config = ModelConfig(
        vocab_size=401, num_layers=1, d_model=202, d_ff=211, num_heads=7, d_k=31, d_v=29,
        positions="learned", max_positions=199,
    )  # fmt: skip
    for name, parameter in Transformer(config).named_parameters():
        if name.startswith("embedding"):
            table = parameter.detach()[:401] * 202**0.5
            assert abs(table.mean()) < 4.5 / math.sqrt(table.numel())
            assert math.isclose(table.pow(2).mean(), 1.0, rel_tol=0.04)
            assert math.isclose(table.pow(4).mean(), 3.0, rel_tol=0.08)  # kurtosis
        elif parameter.dim() == 2:
            parts = parameter.split([7 * 31, 7 * 29]) if "key_value" in name else [parameter]
            for part in parts:
                bound = math.sqrt(6 / sum(part.shape))
                assert 0.99 * bound < part.abs().max().item() <= bound, name
                assert math.isclose(part.std().item(), bound / 3**0.5, rel_tol=0.02), name


def test_logits_start_at_unit_size() -> None:
    model = Transformer(dataclasses.replace(TINY_MODEL, vocab_size=1_009, d_model=94))
    logits = model(random_sentences([11, 7]), random_targets([13, 13]))
    assert 0.8 < logits.std().item() < 1.25
