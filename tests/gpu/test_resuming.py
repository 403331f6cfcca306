"""Training continued from a checkpoint, on the device and without a GPU."""

from __future__ import annotations

import multiprocessing
import warnings
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import lightning.pytorch as lightning
import pytest
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from bench.common import Size
from experiments.callbacks.checkpoints import AtomicCheckpointIO
from experiments.callbacks.metrics import quieten_lightning
from tests.gpu.test_equality import CPU, LIMITS, LOAD, Record, small_config
from transformer.data.batches import Batch, FixedBatches
from transformer.training.checkpoints import average_weights
from transformer.training.module import TransformerModule

_STEPS, _SAVED_STEP = 4, 2
# Differences of the weights, relative to what training has changed in them. Kernels that add in any
# order cause small ones; other batches, dropout masks or moments of Adam cause ones of about 1.
_LIMIT = 5e-2


@pytest.mark.parametrize("deterministic", [True, False], ids=["deterministic", "as it trains"])
def test_a_resumed_training_ends_like_an_uninterrupted_one(
    deterministic: bool,
    size: Size,
    device: torch.device,
    tmp_path: Path,
    record_property: Record,
) -> None:
    """Bit for bit with deterministic kernels."""
    batches, path = LOAD.batches(_STEPS, CPU), tmp_path / "half.ckpt"
    with _deterministic_kernels() if deterministic else nullcontext():
        whole = train(size, device, batches, save=path)
        others = {
            "trained_twice": train(size, device, batches),
            "resumed": train(size, device, batches, start=path),
        }
        changed = train(size, device, [*batches[:2], *batches[:2]], start=path)
    initial = _vector(TransformerModule(small_config(size)))

    def difference(other: Tensor) -> float:
        return float((other - whole).norm() / (whole - initial).norm())

    for name, other in others.items():
        record_property(f"{name}_differs_by", difference(other))
    assert difference(changed) > 2 * _LIMIT  # other batches would be noticed
    assert all(difference(other) <= (0.0 if deterministic else _LIMIT) for other in others.values())


def test_a_checkpoint_is_averaged_scored_and_resumed_without_a_gpu(
    size: Size, device: torch.device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches, path = LOAD.batches(_STEPS, CPU), tmp_path / "half.ckpt"
    train(size, device, batches, save=path)
    weights: dict[str, Tensor] = torch.load(path, weights_only=True)["state_dict"]
    assert {weight.device.type for weight in weights.values()} == {device.type}
    module = TransformerModule(small_config(size)).to(device).eval()
    module.load_state_dict(weights)
    with torch.no_grad():
        loss = float(module.loss(batches[0].to(device))[0])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        gpus, found = process.submit(open_on_cpu, path, size).result()
    assert gpus == 0
    assert found == pytest.approx(loss, rel=LIMITS["fp32"][0])


def open_on_cpu(path: Path, size: Size) -> tuple[int, float]:
    """Average, score and resume a checkpoint; the GPUs that this process sees, and the loss."""
    batches = LOAD.batches(_STEPS, CPU)
    module = TransformerModule(small_config(size)).eval()
    module.model.load_state_dict(average_weights([path]))
    with torch.no_grad():
        loss = float(module.loss(batches[0])[0])
    train(size, CPU, batches, start=path)
    return torch.cuda.device_count(), loss


@contextmanager
def _deterministic_kernels() -> Generator[None]:
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        # The fused kernels of attention may add gradients in any order even then.
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch.use_deterministic_algorithms(False)


def train(
    size: Size,
    device: torch.device,
    batches: Sequence[Batch],
    *,
    start: Path | None = None,
    save: Path | None = None,
) -> Tensor:
    """Train with Lightning's Trainer, dropout included, and return all weights in one vector.

    Args:
        size: of the model
        device: to train on, in its own precision
        batches: one for each step
        start: a checkpoint to continue from
        save: where a checkpoint is written halfway, while the weights are on the device
    """
    quieten_lightning()
    module = TransformerModule(small_config(size, precision="auto"))
    loader = _Remaining(batches)
    loader.first = 0 if start is None else _SAVED_STEP
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that some kernels have no deterministic form
        trainer = lightning.Trainer(
            accelerator="gpu" if device.type == "cuda" else "cpu",
            devices=1,
            max_steps=len(batches),
            callbacks=[] if save is None else [_SaveHalfway(save)],
            plugins=[AtomicCheckpointIO()],
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(module, loader, ckpt_path=start)
    assert trainer.global_step == len(batches)
    return _vector(module)


def _vector(module: TransformerModule) -> Tensor:
    return torch.cat([p.detach().cpu().flatten() for p in module.parameters()])


class _SaveHalfway(lightning.Callback):
    def __init__(self, path: Path) -> None:
        self._path = path

    def on_train_batch_end(self, trainer: lightning.Trainer, *args: Any, **kwargs: Any) -> None:
        del args, kwargs
        if trainer.global_step == _SAVED_STEP:
            trainer.save_checkpoint(self._path)


class _Remaining(FixedBatches):
    """The batches of an epoch from ``first`` on, as our DataModule's loader gives them."""

    first = 0

    def __iter__(self) -> Iterator[Batch]:
        return iter(self[self.first :])
