"""Optimizers of variants against torch's own, and resuming from their state."""

from __future__ import annotations

import copy
from typing import Any, TypeVar

import pytest
import torch
from torch.optim import Adam, AdamW, Muon

from tests.samples import TINY_MODEL, random_sentences, random_targets
from transformer.config import TrainingConfig
from transformer.model.encoder_decoder import Transformer
from transformer.variants.optimizers import AdamWTransformer, JointOptimizer, MuonTransformer

CONFIG = TrainingConfig()
BETAS = (CONFIG.adam_beta1, CONFIG.adam_beta2)


Model = TypeVar("Model", bound=Transformer)


def with_gradients(model: Model) -> Model:
    model.zero_grad()
    model(random_sentences([5, 3]), random_targets([7, 7])).square().sum().backward()
    return model


@pytest.mark.parametrize("kind", [AdamWTransformer, MuonTransformer])
def test_each_parameter_takes_the_step_of_its_optimizer(
    kind: type[AdamWTransformer | MuonTransformer],
) -> None:
    """AdamW decays matrices alone; Muon takes those of the layers, and Adam the rest."""
    model = with_gradients(kind(TINY_MODEL))
    theirs = copy.deepcopy(model)
    for (name, ours), copied in zip(model.named_parameters(), theirs.parameters(), strict=True):
        assert ours.grad is not None
        copied.grad = ours.grad.clone()
        rate: dict[str, Any] = {"lr": 0.01, "betas": BETAS, "eps": CONFIG.adam_epsilon}
        if kind is AdamWTransformer:
            AdamW([copied], weight_decay=0.1 if copied.dim() > 1 else 0.0, **rate).step()
        elif name.startswith(("encoder", "decoder")) and copied.dim() == 2:
            Muon([copied], lr=0.01, weight_decay=0.0, adjust_lr_fn="match_rms_adamw").step()
        else:
            Adam([copied], **rate).step()
    optimizer = model.optimizer(CONFIG)
    for group in optimizer.param_groups:
        group["lr"] = 0.01
    optimizer.step()
    torch.testing.assert_close(model.state_dict(), theirs.state_dict())


def test_a_joint_optimizer_continues_from_its_state() -> None:
    model = with_gradients(MuonTransformer(TINY_MODEL))
    optimizer = model.optimizer(CONFIG)
    assert isinstance(optimizer, JointOptimizer)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.01 / (step + 1))
    optimizer.step()
    schedule.step()
    resumed = copy.deepcopy(model)
    again = resumed.optimizer(CONFIG)
    again.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    torch.manual_seed(5)
    with_gradients(model)
    torch.manual_seed(5)
    with_gradients(resumed)
    optimizer.step()
    again.step()
    torch.testing.assert_close(model.state_dict(), resumed.state_dict(), rtol=0, atol=0)
