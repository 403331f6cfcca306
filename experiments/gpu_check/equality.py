"""Does a device compute what the CPU computes? Loss, gradients and decoding."""

from __future__ import annotations

from copy import deepcopy

import torch
from torch import Tensor

from experiments.benchmark.workload import Size, Workload, config_of
from experiments.gpu_check.findings import Findings
from transformer.config import Config, DecodingConfig, Precision, override
from transformer.data.batches import Batch
from transformer.decoding import decode_sentences
from transformer.training.module import TransformerModule

CPU = torch.device("cpu")
LOAD = Workload(text="multi30k", vocab_size=1_000, tokens_per_batch=1_000)
# Relative differences of the loss and of the whole gradient that rounding may cause.
LIMITS: dict[Precision, tuple[float, float]] = {"fp32": (1e-5, 1e-3), "bf16": (1e-2, 1e-1)}
# Sentences whose best translations are as good as tied may differ.
_DECODED_DIFFERENTLY = 0.02


def small_config(size: Size, **changes: object) -> Config:
    """A model of two layers of that size, in fp32 unless ``changes`` say otherwise."""
    return override(config_of(size, LOAD), **{"num_layers": 2, "precision": "fp32", **changes})


def loss_and_gradients(device: torch.device, findings: Findings, size: Size) -> None:
    """Rows of Table 3 with every form of attention, in both precisions against fp32 on the CPU."""
    width = config_of(size, LOAD).model.d_model
    rows: dict[str, dict[str, object]] = {
        "base": {},
        "A-h1": {"num_heads": 1, "d_k": width, "d_v": width},
        "B-dk16": {"d_k": 16, "d_v": 32},
        "E": {"positions": "learned"},
    }
    (batch,) = LOAD.batches(1, CPU)
    for row, changes in rows.items():
        config = small_config(size, dropout=0.0, **changes)
        reference = TransformerModule(config)
        expected, expected_gradient = _loss_and_gradient(reference, batch)
        for precision, (for_loss, for_gradient) in LIMITS.items():
            module = TransformerModule(override(config, precision=precision)).to(device)
            module.load_state_dict(reference.state_dict())
            loss, gradient = _loss_and_gradient(module, batch.to(device))
            findings.compare(f"{row}, {precision}: loss", _distance(loss, expected), for_loss)
            distance = _distance(gradient, expected_gradient)
            findings.compare(f"{row}, {precision}: gradient", distance, for_gradient)


def _loss_and_gradient(module: TransformerModule, batch: Batch) -> tuple[Tensor, Tensor]:
    smoothed, _ = module.training_loss(batch)
    gradients = torch.autograd.grad(smoothed, list(module.parameters()))
    return smoothed.detach().cpu(), torch.cat([g.flatten().double().cpu() for g in gradients])


def _distance(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).norm() / expected.norm())


def decoding(device: torch.device, findings: Findings, size: Size, sentences: int) -> None:
    """The share of sentences whose translation differs from the CPU's, greedy and by beam."""
    for dtype in (torch.float32, torch.float64):
        reference = TransformerModule(small_config(size)).model.to(dtype).eval()
        torch.manual_seed(1)
        with torch.no_grad():  # far from the initial values, so that translations vary
            for parameter in reference.parameters():
                parameter.add_(torch.randn_like(parameter) * parameter.std().nan_to_num(0.1))
        model = deepcopy(reference).to(device)
        pairs = LOAD.pairs(sentences)
        sources = [pairs[pair][0].tolist() for pair in range(sentences)]
        for name, beam_size in (("greedy", 1), ("beam 4", 4)):
            config = DecodingConfig(beam_size=beam_size, max_extra_length=10)
            expected = dict(decode_sentences(reference, sources, config))
            found = dict(decode_sentences(model, sources, config))
            differing = sum(found[row] != expected[row] for row in range(sentences)) / sentences
            what = f"{name}, {str(dtype).removeprefix('torch.')}: share that differs"
            findings.compare(what, differing, _DECODED_DIFFERENTLY)
