"""Does a device compute what the CPU computes? Loss, gradients, decoding, resuming."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any, cast

import lightning.pytorch as lightning
import torch
from torch import Tensor

from experiments.benchmark.workload import Size, Workload, config_of
from experiments.callbacks.display import quieten_lightning
from experiments.gpu_check.findings import Findings
from transformer.config import Config, DecodingConfig, Precision, override
from transformer.data.batches import Batch, FixedBatches
from transformer.decoding import decode_sentences
from transformer.training.checkpoints import average_weights
from transformer.training.module import TransformerModule

_CPU = torch.device("cpu")
_LOAD = Workload(text="multi30k", vocab_size=1_000, tokens_per_batch=1_000)
# Relative differences of the loss and of the whole gradient that rounding may cause.
_LIMITS: dict[Precision, tuple[float, float]] = {"fp32": (1e-5, 1e-3), "bf16": (1e-2, 1e-1)}
_STEPS = 4
# Sentences whose best translations are as good as tied may differ.
_DECODED_OTHERWISE = 0.02


def _config(size: Size, **changes: object) -> Config:
    return override(config_of(size, _LOAD), num_layers=2, precision="fp32", **changes)


def loss_and_gradients(device: torch.device, size: Size) -> Findings:
    """Rows of Table 3 with every form of attention, in both precisions against fp32 on the CPU."""
    width = config_of(size, _LOAD).model.d_model
    rows: dict[str, dict[str, object]] = {
        "base": {},
        "A-h1": {"num_heads": 1, "d_k": width, "d_v": width},
        "B-dk16": {"d_k": 16, "d_v": 32},
        "E": {"positions": "learned"},
    }
    findings = Findings()
    (batch,) = _LOAD.batches(1, _CPU)
    for row, changes in rows.items():
        config = _config(size, dropout=0.0, **changes)
        reference = TransformerModule(config)
        expected, expected_gradient = _differentiated(reference, batch)
        for precision, (for_loss, for_gradient) in _LIMITS.items():
            module = TransformerModule(override(config, precision=precision)).to(device)
            module.load_state_dict(reference.state_dict())
            loss, gradient = _differentiated(module, batch.to(device))
            findings.compare(f"{row}, {precision}: loss", _distance(loss, expected), for_loss)
            distance = _distance(gradient, expected_gradient)
            findings.compare(f"{row}, {precision}: gradient", distance, for_gradient)
    return findings


def _differentiated(module: TransformerModule, batch: Batch) -> tuple[Tensor, Tensor]:
    smoothed, _ = module.training_loss(batch)
    gradients = torch.autograd.grad(smoothed, list(module.parameters()))
    return smoothed.detach().cpu(), torch.cat([g.flatten().double().cpu() for g in gradients])


def _distance(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).norm() / expected.norm())


def decoding(device: torch.device, size: Size, sentences: int) -> Findings:
    """The share of sentences that greedy and beam search translate otherwise than on the CPU."""
    findings = Findings()
    for kind in (torch.float32, torch.float64):
        there = TransformerModule(_config(size)).model.to(kind).eval()
        torch.manual_seed(1)
        with torch.no_grad():  # far from the initial values, so that translations vary
            for parameter in there.parameters():
                parameter.add_(torch.randn_like(parameter) * parameter.std().nan_to_num(0.1))
        here = deepcopy(there).to(device)
        pairs = _LOAD.pairs(sentences)
        sources = [pairs[pair][0].tolist() for pair in range(sentences)]
        for name, beam_size in (("greedy", 1), ("beam 4", 4)):
            config = DecodingConfig(beam_size=beam_size, max_extra_length=10)
            expected = dict(decode_sentences(there, sources, config))
            found = dict(decode_sentences(here, sources, config))
            otherwise = sum(found[row] != expected[row] for row in range(sentences)) / sentences
            what = f"{name}, {str(kind).removeprefix('torch.')}: sentences decoded otherwise"
            findings.compare(what, otherwise, _DECODED_OTHERWISE)
    return findings


def resuming(device: torch.device, size: Size) -> Findings:
    """A training continued from a checkpoint, which is also opened in a process without a GPU."""
    findings = Findings()
    batches = _LOAD.batches(_STEPS, _CPU)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "half.ckpt"
        for name, deterministic in (("as it trains", False), ("deterministic", True)):
            torch.use_deterministic_algorithms(deterministic, warn_only=True)
            try:
                straight, again = (_trained(size, device, batches) for _ in range(2))
                _trained(size, device, batches, _STEPS // 2, save=path)
                resumed = _trained(size, device, batches, start=path)
            finally:
                torch.use_deterministic_algorithms(False)
            # Kernels that add in any order differ from run to run; resuming is not to blame.
            same_twice = _apart(straight, again)
            findings.compare(f"{name}: the same training twice, largest", same_twice, 0.0)
            findings.compare(
                f"{name}: resumed, largest", _apart(straight, resumed), 10 * same_twice
            )
        opened = _open_without_gpu(path, size)
        saved = torch.load(path, map_location="cpu", weights_only=True)
        module = TransformerModule(_config(size)).to(device).eval()
        module.load_state_dict(saved["state_dict"])
        with torch.no_grad():
            loss = float(module.loss(batches[0].to(device))[0])
        findings.figures["without a GPU"] = opened
        findings.compare("GPUs seen in the process without", opened["gpus"], 0.0)
        findings.compare("steps it could not resume", abs(_STEPS - opened["steps"]), 0.0)
        findings.compare("its loss", abs(opened["loss"] / loss - 1), _LIMITS["fp32"][0])
    return findings


def _trained(
    size: Size,
    device: torch.device,
    batches: Sequence[Batch],
    steps: int = _STEPS,
    *,
    start: Path | None = None,
    save: Path | None = None,
) -> dict[str, Tensor]:
    """The weights and moments after ``steps`` steps by Lightning's Trainer, dropout included."""
    quieten_lightning()
    module = TransformerModule(_config(size))
    trainer = lightning.Trainer(
        accelerator="gpu" if device.type == "cuda" else "cpu",
        devices=1,
        max_steps=steps,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    loader = _Rest(batches)
    loader.first = 0 if start is None else _STEPS // 2
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that some kernels have no deterministic form
        trainer.fit(module, loader, ckpt_path=start)
    if save is not None:
        trainer.save_checkpoint(save)
    optimizer = cast(torch.optim.Optimizer, module.optimizers(use_pl_optimizer=False))
    state: dict[str, Tensor] = {name: p.detach().cpu() for name, p in module.named_parameters()}
    for index, moments in cast(dict[int, Any], optimizer.state_dict()["state"]).items():
        state |= {f"{index}.{name}": torch.as_tensor(x).cpu() for name, x in moments.items()}
    if trainer.global_step != steps:
        raise RuntimeError(f"training ended at step {trainer.global_step}, not {steps}")
    return state


class _Rest(FixedBatches):
    """An epoch that a resumed training continues at ``first``, as our DataModule's loader does."""

    first = 0

    def __iter__(self) -> Iterator[Batch]:
        return iter(self[self.first :])


def _apart(one: dict[str, Tensor], other: dict[str, Tensor]) -> float:
    return max(float((one[name] - other[name]).abs().max()) for name in one)


def _open_without_gpu(path: Path, size: Size) -> dict[str, float]:
    command = [sys.executable, "-m", __spec__.name, str(path), size]
    hidden = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, env=hidden, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"without a GPU the checkpoint does not open: {done.stderr.strip()}")
    return json.loads(done.stdout.splitlines()[-1])


def open_here(path: Path, size: Size) -> dict[str, float]:
    """Average, score and resume a checkpoint on the CPU, as evaluation and training do."""
    batches = _LOAD.batches(_STEPS, _CPU)
    module = TransformerModule(_config(size)).eval()
    module.load_state_dict(average_weights([path]))
    with torch.no_grad():
        loss = float(module.loss(batches[0])[0])
    resumed = _trained(size, _CPU, batches, start=path)
    return {
        "gpus": torch.cuda.device_count(),
        "loss": loss,
        "steps": int(resumed["0.step"]),
    }


if __name__ == "__main__":
    print(json.dumps(open_here(Path(sys.argv[1]), cast(Size, sys.argv[2]))))
