"""Tensors on ``meta`` show what is computed on the wrong device."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from tests.samples import TINY_MODEL, random_sentences, random_targets
from transformer.config import Config, DecodingConfig
from transformer.data.batches import Batch
from transformer.decoding import beams
from transformer.decoding.search import beam_search
from transformer.model.encoder_decoder import Transformer
from transformer.training.module import TransformerModule


def test_a_step_keeps_to_one_device(tiny_config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda *_: False)
    batch = Batch(
        src=random_sentences([5, 3]), tgt=random_targets([4, 7]), source_tokens=8, target_tokens=9
    )
    batch = dataclasses.replace(
        batch, **{name: getattr(batch, name).to("meta") for name in ("src", "tgt", "real_targets")}
    )
    module = TransformerModule(tiny_config)
    module.model.to("meta")
    smoothed, _ = module.loss(batch)
    gradients = torch.autograd.grad(smoothed, list(module.parameters()))
    assert {gradient.device.type for gradient in gradients} == {"meta"}


@pytest.mark.parametrize("beam_size", [1, 2])
def test_every_tensor_of_a_search_names_its_device(
    beam_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that does not lands on ``meta`` here, and on the CPU of a machine with a GPU."""
    # A single number may stay on the CPU.
    monkeypatch.setattr(beams, "length_penalty", lambda n, alpha: ((5.0 + n) / 6.0) ** alpha)
    model = Transformer(TINY_MODEL).eval()
    src = random_sentences([5, 3])
    config = DecodingConfig(beam_size=beam_size, max_extra_length=3)
    with torch.inference_mode():
        expected = beam_search(model, src, config)
        with torch.device("meta"):
            assert beam_search(model, src, config) == expected
