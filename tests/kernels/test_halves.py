"""Two halves on two threads against the whole batch, and their determinism."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from transformer.config import Config, override
from transformer.data.batches import Batch
from transformer.data.module import TranslationDataModule
from transformer.training.module import TransformerModule


@pytest.fixture(autouse=True)
def _two_threads(set_threads: Callable[[int], None]) -> None:
    set_threads(2)


def first_batch(config: Config) -> Batch:
    return next(iter(TranslationDataModule(config).train_dataloader()))


def test_frozen_parameters_get_no_gradient(tiny_config: Config) -> None:
    module = TransformerModule(tiny_config)
    module.model.embedding.requires_grad_(False)
    smoothed, _ = module.training_loss(first_batch(tiny_config))
    smoothed.backward()
    without = {name for name, p in module.named_parameters() if p.grad is None}
    assert without == {"model.embedding.weight"}


def test_the_halves_have_different_dropout_masks(
    tiny_config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two copies of a sentence are in different halves."""
    config = override(tiny_config, dropout=0.5)
    module = TransformerModule(config).train()
    batch = first_batch(config)
    rows = torch.tensor([0, 0])
    twice = Batch(src=batch.src[rows], tgt=batch.tgt[rows], source_tokens=1, target_tokens=1)
    loss, lost = module.loss, list[float]()

    def keep(half: Batch) -> tuple[Tensor, Tensor]:
        found = loss(half)
        lost.append(found[0].item())
        return found

    monkeypatch.setattr(module, "loss", keep)
    module.training_loss(twice)
    assert lost[0] != lost[1]


def test_an_error_in_a_half_is_raised_by_the_step(tiny_config: Config) -> None:
    module, batch = TransformerModule(tiny_config), first_batch(tiny_config)
    batch.src[0, 0] = len(module.model.embedding.weight)
    with pytest.raises(IndexError):
        module.training_loss(batch)
    assert torch.get_num_threads() == 2
