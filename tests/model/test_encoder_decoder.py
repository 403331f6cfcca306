"""The whole model: what influences what, and the initialisation."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch

from tests.samples import TINY_MODEL, random_sentences, random_targets, tiny_model
from transformer.config import ModelConfig
from transformer.kernels.dropout import Dropout
from transformer.model.encoder_decoder import Transformer

INF = math.inf
LEARNED = dataclasses.replace(TINY_MODEL, positions="learned")
both_positions = pytest.mark.parametrize(
    "config", [TINY_MODEL, LEARNED], ids=lambda config: config.positions
)


@both_positions
def test_a_later_token_changes_no_earlier_logit(config: ModelConfig) -> None:
    model = tiny_model(config)
    src, tgt = random_sentences([5, 7]), random_targets([11, 11])
    logits = model(src, tgt)
    assert logits.shape == (2, 11, 61)
    for position in range(1, 11):
        changed = tgt.clone()
        changed[:, position] = 4 + (changed[:, position] + 1) % 57
        found = model(src, changed)
        assert torch.equal(found[:, :position], logits[:, :position])
        assert not torch.isclose(found[:, position:], logits[:, position:]).all(-1).any()


def test_every_source_token_changes_every_logit() -> None:
    model = tiny_model()
    src, tgt = random_sentences([5]), random_targets([7])
    logits = model(src, tgt)
    for position in range(5):
        changed = src.clone()
        changed[:, position] = 4 + (changed[:, position] + 1) % 57
        assert not torch.isclose(model(changed, tgt), logits).all(-1).any()


@both_positions
def test_every_parameter_gets_a_gradient(config: ModelConfig) -> None:
    model = tiny_model(config)
    logits = model(random_sentences([19, 13]), random_targets([19, 17]))
    (logits * torch.randn_like(logits)).sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.ne(0).any(), name
        if parameter.dim() == 2 and "feed_forward" not in name:  # where a ReLU may be inactive
            reached = parameter.grad.ne(0).any(dim=1)
            if name == "embedding.weight":
                assert not reached[61:].any()
                reached = reached[:61]
            assert reached.all(), f"a row of {name}"


def test_dropout_follows_every_sublayer_and_the_embedding() -> None:
    model = Transformer(dataclasses.replace(TINY_MODEL, dropout=0.2))
    names = [name for name, module in model.named_modules() if isinstance(module, Dropout)]
    assert len(names) == 1 + TINY_MODEL.num_layers * (2 + 3)
    assert all(m.p == 0.2 for m in model.modules() if isinstance(m, Dropout))


def test_no_matrix_keeps_torchs_default_initialisation() -> None:
    """No matrix keeps torch's default, whose deviation is 1 / sqrt(3 inputs)."""
    config = ModelConfig(
        vocab_size=401, num_layers=1, d_model=202, d_ff=211, num_heads=7, d_k=31, d_v=29
    )
    for name, parameter in Transformer(config).named_parameters():
        if name == "embedding.weight":
            assert math.isclose(parameter[:401].std().item(), 202**-0.5, rel_tol=0.02)
        elif "key_value" not in name and parameter.dim() == 2:
            xavier = math.sqrt(2 / sum(parameter.shape))
            assert math.isclose(parameter.std().item(), xavier, rel_tol=0.02), name


def test_logits_start_at_unit_size() -> None:
    model = Transformer(dataclasses.replace(TINY_MODEL, vocab_size=1_009, d_model=94))
    logits = model(random_sentences([11, 7]), random_targets([13, 13]))
    assert 0.8 < logits.std().item() < 1.25
