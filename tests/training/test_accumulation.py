"""Gradient accumulation: the same batches, gradients and metrics, counted once per step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning.pytorch as lightning
import pytest
import torch

from tests.samples import tiny
from tests.training.test_module import flat, resuming, trainer
from transformer.config import Config, override
from transformer.corpus import Corpus
from transformer.data.module import TranslationDataModule
from transformer.training.module import TransformerModule

FIGURES = ("loss", "train_perplexity", "learning_rate", "gradient_norm")


class Figures(lightning.Callback):
    """Records the metrics of each step."""

    def __init__(self) -> None:
        self.steps: dict[int, list[float]] = {}

    def on_train_batch_end(self, trainer: lightning.Trainer, *args: Any, **kwargs: Any) -> None:
        """The last micro-batch of a step overwrites the earlier ones."""
        if all(name in trainer.callback_metrics for name in FIGURES):
            figures = [float(trainer.callback_metrics[name]) for name in FIGURES]
            self.steps[trainer.global_step] = figures


def fit(
    config: Config, steps: int, accumulate: int, checkpoint: Path | None = None
) -> tuple[lightning.Trainer, TransformerModule, dict[int, list[float]]]:
    module, figures = TransformerModule(config), Figures()
    run = trainer(steps, figures, accumulate_grad_batches=accumulate)
    data = TranslationDataModule(config)
    run.fit(module, data, ckpt_path=checkpoint, weights_only=True)
    return run, module, figures.steps


@pytest.fixture
def config(files_corpus: Corpus) -> Config:
    return tiny(files_corpus, log_every_steps=1, clip_norm=1.0)


# The most parts are more than a batch has pairs.
@pytest.mark.parametrize(("accumulate", "steps"), [(4, 5), (37, 1)])
def test_accumulated_steps_equal_steps_of_whole_batches(
    accumulate: int, steps: int, config: Config
) -> None:
    _, module, expected = fit(config, steps, 1)
    _, parted, found = fit(config, steps, accumulate)
    assert found.keys() == expected.keys() == set(range(1, steps + 1))
    for step, figures in found.items():
        assert figures == pytest.approx(expected[step], rel=1e-4)
    torch.testing.assert_close(flat(parted), flat(module), rtol=1e-4, atol=2e-5)


@resuming
def test_an_accumulating_run_resumes_bit_for_bit(config: Config, tmp_path: Path) -> None:
    config = override(config, dropout=0.3)
    _, whole, figures = fit(config, 7, 2)
    first, _, _ = fit(config, 3, 2)
    first.save_checkpoint(tmp_path / "stop.ckpt")
    _, resumed, rest = fit(config, 7, 2, tmp_path / "stop.ckpt")
    assert rest == {step: figures[step] for step in range(4, 8)}
    assert torch.equal(flat(resumed), flat(whole))
