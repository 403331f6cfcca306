"""Find models whose outputs are the same at all positions."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from bench import collapse
from bench.collapse import measure_collapse
from experiments.evaluate.trained import load_trained, text_of_split
from experiments.run import run
from tests.experiments.samples import tiny_experiment
from tests.samples import write_corpus
from transformer.model.encoder_decoder import padding_mask


def test_a_collapsed_encoder_makes_all_sources_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = tmp_path / "run"
    run(tiny_experiment(write_corpus(tmp_path / "text"), average_checkpoints=1), directory)
    monkeypatch.setattr(sys, "argv", ["collapse", str(directory)])
    collapse.main()
    heads, line = capsys.readouterr().out.splitlines()
    assert heads.split()[0] == "encoder" and line.endswith(str(directory))

    trained = load_trained(directory, average=1)
    text = text_of_split(trained.experiment, "valid")
    found = measure_collapse(trained, text)
    assert [float(word.replace(",", "")) for word in line.split()[:4]] == pytest.approx(
        [found.encoder, found.decoder, found.perplexity, found.with_other_sources], rel=0.05
    )
    squares = []
    for source in text.sources:  # one by one, so without padding
        src = torch.tensor(trained.vocabulary.encode([source]))
        with torch.inference_mode():
            memory = trained.model.encode(src, padding_mask(src))[0]
        squares.append((memory - memory.mean(dim=0)).square().mean())
    assert found.encoder == pytest.approx(torch.stack(squares).mean().sqrt().item(), rel=1e-4)
    assert found.encoder > 0.1 and found.perplexity != found.with_other_sources

    torch.nn.init.zeros_(trained.model.encoder[-1].feed_forward_norm.norm.weight)
    found = measure_collapse(trained, text)
    assert found.encoder == 0.0 and found.decoder > 0.1
    assert found.perplexity == pytest.approx(found.with_other_sources)
