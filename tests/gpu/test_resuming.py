"""Training continued from a checkpoint, on the device and without a GPU."""

from __future__ import annotations

import multiprocessing
import time
import warnings
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import lightning.pytorch as lightning
import pytest
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from ablations.tables.scales import SMALL
from ablations.tables.table3 import TABLE
from bench.common import Size
from bench.workload import uncompiled
from experiments.callbacks.checkpoints import AtomicCheckpointIO
from experiments.callbacks.metrics import quieten_lightning
from tests.gpu.test_equality import CPU, LIMITS, LOAD, Record, small_config
from transformer.config import Config, override
from transformer.data.batches import Batch, FixedBatches
from transformer.training import step_kinds, whole_step
from transformer.training.checkpoints import average_weights
from transformer.training.module import TransformerModule

_FEW_STEPS = 4
# In which most shapes have come often enough to be captured.
_STEPS = {"cuda": 220, "cpu": 10}
_TOKENS = {"cuda": 1_000, "cpu": 300}  # of a batch
# Differences of the weights, relative to what training has changed in them. Kernels that add in any
# order cause small ones; other batches, dropout masks or moments of Adam cause ones of about 1.
_LIMIT = 5e-2


@pytest.mark.parametrize("deterministic", [True, False], ids=["deterministic", "plain"])
def test_a_resumed_training_ends_like_an_uninterrupted_one(
    deterministic: bool,
    size: Size,
    device: torch.device,
    tmp_path: Path,
    record_property: Record,
) -> None:
    """Operation by operation; bit for bit with deterministic kernels."""
    batches, path = LOAD.batches(_FEW_STEPS, CPU), tmp_path / "half.ckpt"
    config = small_config(size, precision="auto", compile=False)
    with _deterministic_kernels() if deterministic else nullcontext():
        whole = train(config, device, batches, save=path)
        others = {
            "trained_twice": train(config, device, batches),
            "resumed": train(config, device, batches, start=path),
        }
        changed = train(config, device, [*batches[:2], *batches[:2]], start=path)
    initial = _vector(TransformerModule(config))

    def difference(other: Tensor) -> float:
        return float((other - whole).norm() / (whole - initial).norm())

    for name, other in others.items():
        record_property(f"{name}_differs_by", difference(other))
    assert difference(changed) > 2 * _LIMIT  # other batches would be noticed
    assert all(difference(other) <= (0.0 if deterministic else _LIMIT) for other in others.values())


@pytest.mark.seconds(170)
@pytest.mark.parametrize("kind", ["captured", "packed"])
def test_captured_steps_are_the_launched_ones_and_resume_bit_for_bit(
    kind: str,
    device: torch.device,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Record,
) -> None:
    """The base row of ``small``; a CPU calls what is captured."""
    config, tokens = TABLE.configure(TABLE.rows[0], SMALL), _TOKENS[device.type]
    config = override(config, compile=True if kind == "packed" else None, tokens_per_batch=tokens)
    load, path = replace(LOAD, tokens_per_batch=tokens), tmp_path / "half.ckpt"
    batches = load.batches(_STEPS[device.type], CPU)
    if device.type == "cpu":
        for module in (step_kinds, whole_step):
            monkeypatch.setattr(module, "can_capture", lambda device: True)
    with uncompiled() if device.type == "cpu" else nullcontext():
        began = time.perf_counter()
        whole = train(config, device, batches, save=path, kind=kind)
        resumed_at = time.perf_counter()
        resumed = train(config, device, batches, start=path, kind=kind)
        monkeypatch.setattr(whole_step, "_may_capture", lambda step, kind: False)
        launched_at = time.perf_counter()
        launched = train(config, device, batches, kind=kind)
    record_property("captured_seconds", resumed_at - began)
    record_property("resumed_seconds", launched_at - resumed_at)
    record_property("launched_seconds", time.perf_counter() - launched_at)
    differences = {
        "launched_differs_by": float((launched - whole).norm() / whole.norm()),
        "resumed_differs_by": float((resumed - whole).norm() / whole.norm()),
    }
    for name, difference in differences.items():
        record_property(name, difference)
    assert differences == {"launched_differs_by": 0.0, "resumed_differs_by": 0.0}


def test_a_checkpoint_is_averaged_scored_and_resumed_without_a_gpu(
    device: torch.device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of captured steps, on a GPU."""
    config = TABLE.configure(TABLE.rows[0], SMALL)
    batches, path = LOAD.batches(_FEW_STEPS, CPU), tmp_path / "half.ckpt"
    train(config, device, batches, save=path)
    weights: dict[str, Tensor] = torch.load(path, weights_only=True)["state_dict"]
    assert {weight.device.type for weight in weights.values()} == {device.type}
    module = TransformerModule(config).to(device).eval()
    module.load_state_dict(weights)
    with torch.no_grad():
        loss = float(module.sums(batches[0].to(device))[0])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        gpus, found = process.submit(open_on_cpu, path, config).result()
    assert gpus == 0
    assert found == pytest.approx(loss, rel=LIMITS["fp32"][0])


def open_on_cpu(path: Path, config: Config) -> tuple[int, float]:
    """Average, score and resume a checkpoint; the GPUs that this process sees, and the loss."""
    batches = LOAD.batches(_FEW_STEPS, CPU)
    module = TransformerModule(config).eval()
    module.model.load_state_dict(average_weights([path]))
    with torch.no_grad():
        loss = float(module.sums(batches[0])[0])
    train(config, CPU, batches, start=path)
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
    config: Config,
    device: torch.device,
    batches: Sequence[Batch],
    *,
    start: Path | None = None,
    save: Path | None = None,
    kind: str | None = None,
) -> Tensor:
    """Train with Lightning's Trainer, dropout included, and return all weights in one vector.

    Args:
        config: of the model, in the device's own precision
        device: to train on
        batches: one for each step
        start: a checkpoint of half of them to continue from
        save: where a checkpoint is written halfway, while the weights are on the device
        kind: the expected one of the steps
    """
    quieten_lightning()
    module = TransformerModule(config)
    half = len(batches) // 2
    loader = _Remaining(batches)
    loader.first = 0 if start is None else half
    with warnings.catch_warnings(record=True) as warned:  # also that kernels are not deterministic
        warnings.simplefilter("always")
        trainer = lightning.Trainer(
            accelerator="gpu" if device.type == "cuda" else "cpu",
            devices=1,
            max_steps=len(batches),
            callbacks=[] if save is None else [_Save(half, save)],
            plugins=[AtomicCheckpointIO()],
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(module, loader, ckpt_path=start)
    assert trainer.global_step == len(batches)
    reasons = [str(each.message) for each in warned if "steps are" in str(each.message)]
    assert kind is None or (module.step_kind, reasons) == (kind, [])
    return _vector(module)


def _vector(module: TransformerModule) -> Tensor:
    return torch.cat([p.detach().cpu().flatten() for p in module.parameters()])


class _Save(lightning.Callback):
    def __init__(self, step: int, path: Path) -> None:
        self._step, self._path = step, path

    def on_train_batch_end(self, trainer: lightning.Trainer, *args: Any, **kwargs: Any) -> None:
        del args, kwargs
        if trainer.global_step == self._step:
            trainer.save_checkpoint(self._path)


class _Remaining(FixedBatches):
    """The batches of an epoch from ``first`` on, as our DataModule's loader gives them."""

    first = 0

    def __iter__(self) -> Iterator[Batch]:
        return iter(self[self.first :])
