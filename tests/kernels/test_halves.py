"""Two halves on two threads give what one batch gives, and the same bits every time."""

from __future__ import annotations

import lightning.pytorch as lightning
import numpy as np
import pytest
import torch
from torch import Tensor

from transformer.config import PAD_ID, Config, override
from transformer.data.batches import Batch
from transformer.data.module import TranslationDataModule
from transformer.kernels.halves import split
from transformer.training.module import TransformerModule


def first_batch(config: Config) -> Batch:
    return next(iter(TranslationDataModule(config).train_dataloader()))


def loss_and_gradients(module: TransformerModule, batch: Batch) -> list[Tensor]:
    smoothed, nll = module.training_loss(batch)
    assert not nll.requires_grad
    return [smoothed.detach(), nll, *torch.autograd.grad(smoothed * 0.3, [*module.parameters()])]


def test_the_loss_and_all_gradients_are_those_of_the_whole_batch(
    tiny_config: Config, two_threads: None
) -> None:
    config = override(tiny_config, dropout=0.0, positions="learned")
    module, batch = TransformerModule(config).double(), first_batch(config)
    found = loss_and_gradients(module, batch)
    torch.set_num_threads(1)
    expected = loss_and_gradients(module, batch)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)


def test_what_is_frozen_gets_no_gradient(tiny_config: Config, two_threads: None) -> None:
    module = TransformerModule(tiny_config)
    module.model.embedding.requires_grad_(False)
    smoothed, _ = module.training_loss(first_batch(tiny_config))
    smoothed.backward()
    without = {name for name, p in module.named_parameters() if p.grad is None}
    assert without == {"model.embedding.weight"}


def test_the_seed_decides_the_masks_of_dropout(tiny_config: Config, two_threads: None) -> None:
    config = override(tiny_config, dropout=0.5)
    module, batch = TransformerModule(config).train(), first_batch(config)

    def draw(seed: int) -> list[Tensor]:
        torch.manual_seed(seed)
        return loss_and_gradients(module, batch)

    for _ in range(20):
        assert all(map(torch.equal, draw(5), draw(5)))
    assert not torch.equal(draw(5)[0], draw(6)[0])


def test_both_halves_have_masks_of_their_own(
    tiny_config: Config, two_threads: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two copies of a sentence land in different halves, and would else lose the same."""
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


def test_training_on_two_threads_is_the_same_every_time(
    tiny_config: Config, two_threads: None
) -> None:
    def train() -> Tensor:
        module = TransformerModule(override(tiny_config, dropout=0.1))
        lightning.Trainer(
            max_steps=40,
            accelerator="cpu",
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        ).fit(module, TranslationDataModule(tiny_config))
        return torch.cat([parameter.detach().flatten() for parameter in module.parameters()])

    assert torch.equal(train(), train())


def test_a_fault_in_a_half_is_a_fault_of_the_step(tiny_config: Config, two_threads: None) -> None:
    module, batch = TransformerModule(tiny_config), first_batch(tiny_config)
    batch.src[0, 0] = len(module.model.embedding.weight)
    with pytest.raises(IndexError):
        module.training_loss(batch)
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize("count", [2, 3, 17])
@pytest.mark.parametrize("seed", range(5))
def test_each_sentence_is_in_one_half_without_idle_columns(count: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    lengths = random.integers(1, 14, (count, 2))
    lengths[0] = 14  # the longest, and the batch's width
    src, tgt = (
        torch.tensor([[i + 1] * n + [PAD_ID] * (14 - n) for i, n in enumerate(side)])
        for side in lengths.T
    )
    halves = split(Batch(src=src, tgt=tgt, source_tokens=1, target_tokens=1))
    found: list[tuple[int, ...]] = []
    for half in halves:
        for side in (half.src, half.tgt):
            assert len(side) and side[:, -1].any() and side.any(1).all()
        for source, target in zip(half.src, half.tgt, strict=True):
            assert source[0] == target[0]
            found.append(
                (int(source[0]) - 1, int(source.count_nonzero()), int(target.count_nonzero()))
            )
    assert sorted(found) == [(i, *row) for i, row in enumerate(lengths.tolist())]
    first, second = (int(h.src.count_nonzero() + h.tgt.count_nonzero()) for h in halves)
    assert count == 2 or abs(first - second) <= 2 * 28


def test_batches_of_as_many_sentences_are_cut_in_few_places() -> None:
    """Each new number of sentences makes products of new shapes."""
    random = np.random.default_rng(5)
    cuts: list[int] = []
    for _ in range(101):
        lengths = np.sort(random.integers(7, 14, 67))
        rows = torch.tensor([[1] * n + [PAD_ID] * (14 - n) for n in lengths])
        first, second = split(Batch(src=rows, tgt=rows, source_tokens=1, target_tokens=1))
        cuts.append(len(first.src))
        tokens = [int(half.src.count_nonzero()) for half in (first, second)]
        assert max(tokens) < 1.08 * sum(tokens) / 2
    assert len(set(cuts)) <= 2
