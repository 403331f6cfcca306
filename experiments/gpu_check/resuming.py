"""Training continued from a checkpoint, on the device and in a process that sees no GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, cast

import lightning.pytorch as lightning
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from experiments.benchmark.workload import Size
from experiments.callbacks.checkpoints import AtomicCheckpointIO
from experiments.callbacks.display import quieten_lightning
from experiments.gpu_check.equality import CPU, LIMITS, LOAD, small_config
from experiments.gpu_check.findings import Findings
from transformer.data.batches import Batch, FixedBatches
from transformer.training.checkpoints import average_weights
from transformer.training.module import TransformerModule

_STEPS, _SAVED_STEP = 4, 2
# Differences of the weights, relative to what training has changed in them. Kernels that add in any
# order cause small ones; other batches, dropout masks or moments of Adam cause ones of about 1.
_LIMIT = 5e-2


def resuming(device: torch.device, findings: Findings, size: Size) -> None:
    """Resume on the device, then open the checkpoint in a process without a GPU."""
    batches = LOAD.batches(_STEPS, CPU)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "half.ckpt"
        for name, deterministic, limit in (
            ("as it trains", False, _LIMIT),
            ("deterministic", True, 0.0),
        ):
            with _deterministic_kernels() if deterministic else nullcontext():
                whole = train(size, device, batches, save=path)
                again = train(size, device, batches)
                resumed = train(size, device, batches, start=path)
            changed = (whole - _initial_weights(size)).norm()
            for what, other in (("trained twice", again), ("resumed", resumed)):
                findings.compare(f"{name}: {what}", float((other - whole).norm() / changed), limit)
        weights: dict[str, Tensor] = torch.load(path, weights_only=True)["state_dict"]
        elsewhere = sum(weight.device.type != device.type for weight in weights.values())
        findings.compare("weights in the checkpoint not of the device", elsewhere, 0.0)
        module = TransformerModule(small_config(size)).to(device).eval()
        module.load_state_dict(weights)
        with torch.no_grad():
            loss = float(module.loss(batches[0].to(device))[0])
        opened = _open_without_gpu(path, size)
        findings.compare("without a GPU: GPUs seen", opened["gpus"], 0.0)
        findings.compare("without a GPU: loss", abs(opened["loss"] / loss - 1), LIMITS["fp32"][0])


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
    if trainer.global_step != len(batches):
        raise RuntimeError(f"training ended at step {trainer.global_step}, not {len(batches)}")
    return _vector(module)


def _initial_weights(size: Size) -> Tensor:
    return _vector(TransformerModule(small_config(size)))


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


def _open_without_gpu(path: Path, size: Size) -> dict[str, float]:
    command = [sys.executable, "-m", __spec__.name, str(path), size]
    hidden = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, env=hidden, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"without a GPU the checkpoint does not open: {done.stderr.strip()}")
    return json.loads(done.stdout.splitlines()[-1])


def open_on_cpu(path: Path, size: Size) -> dict[str, float]:
    """Average, score and resume a checkpoint on the CPU, as evaluation and training do."""
    batches = LOAD.batches(_STEPS, CPU)
    module = TransformerModule(small_config(size)).eval()
    module.model.load_state_dict(average_weights([path]))
    with torch.no_grad():
        loss = float(module.loss(batches[0])[0])
    train(size, CPU, batches, start=path)  # raises an error unless it takes all steps
    return {"gpus": torch.cuda.device_count(), "loss": loss}


if __name__ == "__main__":
    print(json.dumps(open_on_cpu(Path(sys.argv[1]), cast(Size, sys.argv[2]))))
