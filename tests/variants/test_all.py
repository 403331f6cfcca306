"""Caching, masks, gradients, counts and FLOPs of the paper's model and of each variant."""

from __future__ import annotations

import dataclasses
from typing import cast

import pytest
import torch

from ablations.tables.since import TABLE
from experiments.catalog.find import find_experiment
from tests.samples import TINY_MODEL, random_sentences, random_targets
from transformer.config import PAD_ID, ModelConfig, TrainingConfig
from transformer.decoding.incremental import check_cache
from transformer.evaluation.counts import count_parameters, training_flops
from transformer.model.encoder_decoder import Transformer
from transformer.training.optimizer import make_optimizer
from transformer.variant import build

VARIANTS = {row.name: cast(str | None, row.changes.get("model")) for row in TABLE.rows}
VARIANTS["multi30k_modern"] = find_experiment("multi30k_modern").config.model.model
variants = pytest.mark.parametrize("name", VARIANTS)
# Even heads for groups, and an odd d_k, of which rotary positions leave one width alone.
SIZES = dataclasses.replace(TINY_MODEL, num_heads=4)


def config_of(name: str) -> ModelConfig:
    return dataclasses.replace(SIZES, model=VARIANTS[name])


def lively(name: str) -> Transformer:
    """The variant in float64 with no parameter at its initial value."""
    torch.manual_seed(7)
    model = build(config_of(name)).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
        for matrix in {model.embedding, model.output}:
            matrix.weight[matrix.vocab_size :] = 0.0
    return model


@variants
def test_no_cache_no_later_word_and_no_padding_changes_a_logit(name: str) -> None:
    model = lively(name)
    check_cache(model)
    src, tgt = random_sentences([5]), random_targets([7])
    logits = model(src, tgt)
    longer = torch.cat([src, torch.full((1, 3), PAD_ID)], dim=1)
    torch.testing.assert_close(model(longer, tgt), logits)
    changed = tgt.clone()
    changed[0, 4:] = torch.tensor([11, 13, 17])
    torch.testing.assert_close(model(src, changed)[:, :4], logits[:, :4])
    for given in ((src, changed), (4 + (src + 1) % 57, tgt)):
        assert not torch.isclose(model(*given)[:, 4:], logits[:, 4:]).all(-1).any()


@variants
def test_every_parameter_gets_a_gradient_and_its_optimizer_moves_it(name: str) -> None:
    model = lively(name).float()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    model(random_sentences([5, 3]), random_targets([7, 7])).square().sum().backward()
    assert all(x.grad is not None and x.grad.any() for x in model.parameters())
    optimizer = make_optimizer(model, TrainingConfig())
    for group in optimizer.param_groups:
        group["lr"] = 1e-3
    optimizer.step()
    still = [key for key, value in model.state_dict().items() if torch.equal(value, before[key])]
    assert not still


@variants
def test_parameters_and_products_are_counted_from_the_modules(name: str) -> None:
    config = dataclasses.replace(config_of(name), num_layers=1)
    model = build(config)
    saved = model.state_dict()
    assert count_parameters(config) == sum(
        saved[key].numel() for key, _ in model.named_parameters()
    )
    flops = 0
    for key, weight in saved.items():
        is_product = weight.dim() == 2 and "relative" not in key
        if key == "embedding.weight" and "projection.weight" in saved:
            is_product = False  # a lookup
        on_source = key.startswith("encoder") or "cross_attention.key_value" in key
        flops += 6 * weight.numel() * (101 if on_source else 103) * is_product
    assert training_flops(config, 101, 103) == flops
    gated = ModelConfig(model=VARIANTS["swiglu"])
    assert abs(count_parameters(gated) / count_parameters(ModelConfig()) - 1) < 0.001
