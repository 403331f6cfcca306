"""Dropout, ``map`` on threads, and the halves of a batch on two of them."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from transformer.config import Config, override
from transformer.data.batches import Batch
from transformer.data.module import TranslationDataModule
from transformer.kernels.dropout import Dropout, dropout_generator
from transformer.kernels.halves import loss_of_halves
from transformer.kernels.threads import map_on_threads
from transformer.training.module import TransformerModule

PRIME = 1_000_003


@pytest.mark.parametrize("p", [0.1, 0.3, 0.5, 0.93])
def test_elements_are_dropped_at_the_rate_and_independently(p: float) -> None:
    """One random number serves four elements, so distances up to four are tested."""
    gone = Dropout(p)(torch.ones(PRIME)).eq(0).double()
    for share, expected in (
        (gone.mean(), p),
        *(((gone[n:] * gone[:-n]).mean(), p * p) for n in range(1, 5)),
    ):
        deviation = math.sqrt(expected * (1 - expected) / PRIME)
        assert abs(share.item() - expected) < 4.5 * deviation


def test_survivors_are_scaled_and_the_gradient_goes_through_the_same_mask() -> None:
    x = (torch.rand(101, 103, dtype=torch.float64) + 0.5).requires_grad_()
    y = Dropout(0.3)(x)
    y.sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(y, x * x.grad)
    torch.testing.assert_close(y[y.ne(0)], x[y.ne(0)] / 0.7, rtol=2e-5, atol=0)


@pytest.mark.parametrize("shape", [(1,), (3,), (3, 5, 7), (0, 3)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_shape_and_dtype_are_kept(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    dropped = Dropout(0.4)(torch.ones(shape, dtype=dtype))
    assert dropped.shape == shape and dropped.dtype == dtype
    assert Dropout(1 - 1e-9)(torch.ones(shape, dtype=dtype)).isfinite().all()  # all but 2^-16


def test_no_rate_and_evaluation_change_nothing_and_draw_nothing() -> None:
    x, before = torch.randn(7, 11), torch.get_rng_state()
    assert torch.equal(Dropout(0.0)(x), x)
    assert torch.equal(Dropout(0.9).eval()(x), x)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(("threads", "share"), [(2, 2), (4, 1), (3, 1), (8, 1)])
def test_each_thread_has_its_share(
    threads: int, share: int, set_threads: Callable[[int], None]
) -> None:
    set_threads(4)
    shares = list(map_on_threads(lambda _: torch.get_num_threads(), range(11), threads))
    assert shares == [share] * 11
    with pytest.raises(ZeroDivisionError):
        list(map_on_threads(lambda x: 1 // x, [1, 0], threads))
    assert torch.get_num_threads() == 4


def test_results_of_several_threads_come_in_order() -> None:
    both = threading.Barrier(2, timeout=30)

    def work(item: int) -> tuple[int, str]:
        both.wait()  # continues only if two threads are working
        return item, threading.current_thread().name

    outcomes = list(map_on_threads(work, range(6), 2))
    assert [item for item, _ in outcomes] == list(range(6))
    assert threading.current_thread().name not in {name for _, name in outcomes}


def first_batch(config: Config) -> Batch:
    return next(iter(TranslationDataModule(config).train_dataloader()))


def test_frozen_and_unused_weights_and_errors_are_as_without_halves(
    tiny_config: Config, set_threads: Callable[[int], None]
) -> None:
    set_threads(2)
    module, batch = TransformerModule(tiny_config), first_batch(tiny_config)
    module.model.embedding.requires_grad_(False)
    module.model.unused = torch.nn.Parameter(torch.ones(3))
    smoothed, _ = module.training_loss(batch)
    smoothed.backward()
    without = {name for name, p in module.named_parameters() if p.grad is None}
    assert without == {"model.embedding.weight"}
    assert module.model.unused.grad is not None and not module.model.unused.grad.any()
    batch.src[0, 0] = len(module.model.embedding.weight)
    with pytest.raises(IndexError):
        module.training_loss(batch)
    assert torch.get_num_threads() == 2


def test_gradients_that_share_memory_are_added_once() -> None:
    p, q, scale = (torch.tensor([1.0, 2.0, 5.0], requires_grad=True) for _ in range(3))

    def loss(x: Tensor) -> tuple[Tensor, Tensor]:
        value = ((p + q) * x).pow(2).sum() + scale.sum()
        return value, value.detach()

    halves, weights = (
        (torch.tensor([3.0, 7.0, 11.0]), torch.tensor([2.0, 13.0, 17.0])),
        (p, q, scale),
    )
    expected = torch.autograd.grad(loss(halves[0])[0] + loss(halves[1])[0], weights)
    loss_of_halves(loss, halves, weights)[0].backward()
    for weight, gradient in zip(weights, expected, strict=True):
        torch.testing.assert_close(weight.grad, gradient)


def test_the_halves_have_different_dropout_masks(
    tiny_config: Config, monkeypatch: pytest.MonkeyPatch, set_threads: Callable[[int], None]
) -> None:
    """Two copies of a sentence are in different halves."""
    set_threads(2)
    module = TransformerModule(override(tiny_config, dropout=0.5)).train()
    batch, rows = first_batch(tiny_config), torch.tensor([0, 0])
    twice = Batch(src=batch.src[rows], tgt=batch.tgt[rows], source_tokens=1, target_tokens=1)
    loss, lost = module.sums, list[float]()

    def keep(half: Batch) -> tuple[Tensor, Tensor]:
        found = loss(half)
        lost.append(found[0].item())
        return found

    monkeypatch.setattr(module, "sums", keep)
    module.training_loss(twice)
    assert lost[0] != lost[1]
    left = map_on_threads(lambda _: dropout_generator.get(), range(4), threads=2)
    assert list(left) == [None] * 4
