"""Training with a bare Trainer: equals a manual loop, learns, resumes, stops on errors."""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import lightning.pytorch as lightning
import pytest
import torch
from torch import Tensor

from tests.samples import tiny, write_corpus, write_pairs
from transformer.config import PAD_ID, Config, DecodingConfig, override
from transformer.corpus import Corpus
from transformer.data.batches import collate
from transformer.data.corpora.folders import folder_corpus
from transformer.data.module import FixedBatches, TranslationDataModule
from transformer.evaluation.perplexity import perplexity, translate
from transformer.training.module import TransformerModule
from transformer.training.optimizer import NonFiniteError, learning_rate

GOLDEN = Path(__file__).with_name("golden_losses.json")


class Losses(lightning.Callback):
    """Records the loss of every step."""

    def __init__(self) -> None:
        self.values: list[float] = []

    def on_train_batch_end(self, *args: Any, **kwargs: Any) -> None:
        """Record what training_step returned."""
        outputs = kwargs.get("outputs", args[2])
        self.values.append(outputs["loss"].item())


def trainer(max_steps: int, *callbacks: lightning.Callback, **options: Any) -> lightning.Trainer:
    """A Trainer as a user of the library would make one, without its output."""
    silent = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
    options = dict.fromkeys(silent, False) | options
    return lightning.Trainer(
        max_steps=max_steps, accelerator="cpu", callbacks=list(callbacks), **options
    )


def fit(config: Config, max_steps: int, **options: Any) -> tuple[TransformerModule, list[float]]:
    module, losses = TransformerModule(config), Losses()
    trainer(max_steps, losses, **options).fit(module, TranslationDataModule(config))
    return module, losses.values


def flat(module: torch.nn.Module) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in module.parameters()])


def golden_losses(corpus: Corpus) -> list[float]:
    """The first twenty losses of a tiny model with dropout on a corpus of numbers."""
    return fit(tiny(corpus, dropout=0.1), max_steps=20)[1]


def test_twenty_golden_losses(files_corpus: Corpus) -> None:
    """Regenerate with ``python -m tests.training.test_module``.

    Other machines and versions of torch add in another order, so they agree to one in a thousand.
    """
    assert golden_losses(files_corpus) == pytest.approx(json.loads(GOLDEN.read_text()), rel=1e-3)


def test_training_equals_a_loop_written_by_hand(tiny_config: Config) -> None:
    """Two epochs of the plan; F.cross_entropy, equation 3 and Adam instead of ours."""
    steps = 31
    module, losses = fit(tiny_config, steps)

    model = TransformerModule(tiny_config).model
    data = TranslationDataModule(tiny_config)
    plan, store = data.train_plan(), data.corpus.store("train")
    assert len(plan) < steps < 2 * len(plan)
    adam = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-9)
    expected: list[float] = []
    for number in range(steps):
        batch = collate(store, plan.batch(number))
        loss = torch.nn.functional.cross_entropy(
            model(batch.src, batch.tgt[:, :-1]).flatten(0, 1),
            batch.tgt[:, 1:].flatten(),
            ignore_index=PAD_ID,
            label_smoothing=0.1,
        )
        adam.zero_grad()
        loss.backward()
        adam.param_groups[0]["lr"] = learning_rate(number + 1, 26, tiny_config.training)
        adam.step()
        expected.append(loss.item())
    assert losses == pytest.approx(expected, rel=1e-4)
    torch.testing.assert_close(flat(module.model), flat(model), rtol=1e-3, atol=1e-4)


def test_only_the_seed_matters(tiny_config: Config) -> None:
    config = override(tiny_config, dropout=0.3)
    module, losses = fit(config, max_steps=5)
    torch.manual_seed(12_345)
    before = torch.get_rng_state()
    TransformerModule(config)
    assert torch.equal(torch.get_rng_state(), before)
    again, same_losses = fit(config, max_steps=5)
    assert same_losses == losses and torch.equal(flat(again), flat(module))
    _, others = fit(override(config, seed=4), max_steps=5)
    assert not set(others) & set(losses)


# It asks for a loader with a state; ours finds its place from the step alone.
resuming = pytest.mark.filterwarnings("ignore:You're resuming from a checkpoint that ended before")


@resuming
@pytest.mark.parametrize(("stop", "threads"), [(5, 1), (13, 2)])
def test_a_run_resumes_bit_for_bit_in_the_middle_of_an_epoch(
    stop: int,
    threads: int,
    tiny_config: Config,
    tmp_path: Path,
    set_threads: Callable[[int], None],
) -> None:
    set_threads(threads)
    config = override(tiny_config, dropout=0.3)
    whole, losses = fit(config, max_steps=stop + 11)
    first = trainer(stop)
    first.fit(TransformerModule(config), TranslationDataModule(config))
    first.save_checkpoint(tmp_path / "stop.ckpt")

    resumed, rest = TransformerModule(config), Losses()
    data = TranslationDataModule(config)
    assert stop % len(data.train_plan()) != 0
    checkpoint = tmp_path / "stop.ckpt"
    trainer(stop + 11, rest).fit(resumed, data, ckpt_path=checkpoint, weights_only=True)
    assert rest.values == losses[stop:]
    assert torch.equal(flat(resumed), flat(whole))


def test_one_batch_is_overfitted(tiny_config: Config) -> None:
    config = override(tiny_config, label_smoothing=0.0, learning_rate_factor=0.4)
    batch = next(iter(TranslationDataModule(config).train_dataloader()))
    module, losses = TransformerModule(config), Losses()
    once = FixedBatches([batch])
    rarely = {"check_val_every_n_epoch": 1_000, "num_sanity_val_steps": 0}
    trainer(81, losses, **rarely).fit(module, once, once)
    assert losses.values[0] > 3.5
    with torch.no_grad():
        smoothed, nll = module.eval().loss(batch)
    assert smoothed.item() == nll.item()
    assert nll.item() / batch.target_tokens < 0.01


def reversed_letters(count: int, seed: int) -> list[tuple[str, str]]:
    """Up to three digits, and the corresponding letters in reverse."""
    random = Random(seed)
    digits = [random.choices(range(10), k=random.randint(1, 3)) for _ in range(count)]
    return [
        (" ".join(map(str, row)), " ".join("abcdefghij"[d] for d in reversed(row)))
        for row in digits
    ]


def test_a_tiny_task_is_learned(tmp_path: Path) -> None:
    for seed, (split, count) in enumerate({"train": 3_001, "valid": 97}.items()):
        write_pairs(tmp_path, split, reversed_letters(count, seed))
    config = override(
        tiny(folder_corpus(tmp_path)),
        vocab_size=45, num_layers=1, d_model=32, d_ff=64, num_heads=2, d_k=16, d_v=16,
        tokens_per_batch=301, warmup_steps=61, learning_rate_factor=0.4, label_smoothing=0.0,
    )  # fmt: skip
    module, losses = fit(config, max_steps=351)
    assert sum(losses[-7:]) / 7 < 0.05
    corpus = TranslationDataModule(config).corpus
    sources, references = corpus.text("valid")
    found = translate(module.model, corpus.vocabulary(), sources, DecodingConfig())
    right = sum(one == other for one, other in zip(found, references, strict=True))
    assert right >= 0.95 * len(references)


def test_logged_metrics_are_means_over_real_word_pieces(tiny_config: Config) -> None:
    config = override(tiny_config, log_every_steps=1, validate_every_steps=1, clip_norm=0.5)
    module = TransformerModule(config)
    data = TranslationDataModule(config)
    torch.nn.init.normal_(module.model.embedding.weight)
    batch = next(iter(data.train_dataloader()))
    with torch.no_grad():
        smoothed, nll = (x.item() / batch.target_tokens for x in module.loss(batch))
    run = trainer(1, num_sanity_val_steps=0, limit_val_batches=0)
    run.fit(module, data)
    logged = {name: value.item() for name, value in run.callback_metrics.items()}
    assert logged["loss"] == pytest.approx(smoothed)
    assert logged["train_perplexity"] == pytest.approx(math.exp(nll), rel=1e-5)
    assert logged["learning_rate"] == pytest.approx(learning_rate(1, 26, config.training))
    assert logged["gradient_norm"] > 0.5
    gradients = [p.grad for p in module.parameters() if p.grad is not None]
    assert torch.nn.utils.get_total_norm(gradients).item() == pytest.approx(0.5, rel=1e-4)


def test_validation_is_the_perplexity_of_the_whole_set(tiny_config: Config) -> None:
    config = override(tiny_config, tokens_per_batch=41, dropout=0.3)
    module, data = TransformerModule(config), TranslationDataModule(config)
    (logged,) = trainer(1).validate(module, data, verbose=False)
    expected = perplexity(module.model, data.corpus.vocabulary(), *data.corpus.text("valid"))
    assert logged["valid_perplexity"] == pytest.approx(expected.per_token, rel=1e-5)
    assert logged["valid_loss"] == pytest.approx(math.log(expected.per_token), rel=1e-5)


@pytest.mark.parametrize(("value", "clip_norm"), [(math.inf, None), (math.nan, 1.0)])
def test_a_non_finite_gradient_stops_the_run_before_the_update(
    value: float, clip_norm: float | None, tiny_config: Config
) -> None:
    class Breaking(TransformerModule):
        def on_after_backward(self) -> None:
            """Overwrite an element of the gradient at one step, and keep the weights before it."""
            if self.global_step == 4:
                before.append(flat(self).clone())
                gradient = next(self.parameters()).grad
                assert gradient is not None
                gradient[5, 7] = value

    before: list[Tensor] = []
    module = Breaking(override(tiny_config, clip_norm=clip_norm))
    with pytest.raises(NonFiniteError, match=rf"step 4 \(batch 4 .*seed 3\) is {value}"):
        trainer(7).fit(module, TranslationDataModule(tiny_config))
    assert torch.equal(flat(module), before[0])


def test_no_checkpoint_is_written_after_a_non_finite_gradient(
    tiny_config: Config, tmp_path: Path
) -> None:
    """On a GPU steps do not wait for the norm, so it is checked before saving."""
    module = TransformerModule(tiny_config)
    run = trainer(2)
    run.fit(module, TranslationDataModule(tiny_config))
    module._norms.append((2, 2, torch.tensor(math.nan)))
    with pytest.raises(NonFiniteError, match=r"step 2 \(batch 2"):
        run.save_checkpoint(tmp_path / "broken.ckpt")
    assert not list(tmp_path.glob("*.ckpt"))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_training_never_waits_for_a_gpu(files_corpus: Corpus) -> None:
    """Between logged steps; any synchronisation raises."""
    config = tiny(files_corpus, max_steps=8, log_every_steps=1_000)
    module = TransformerModule(config).to("cuda").train()
    optimizer = module.configure_optimizers()["optimizer"]
    loader = TranslationDataModule(config).train_dataloader()
    for number, batch in zip(range(6), loader, strict=False):
        if number == 2:
            torch.cuda.set_sync_debug_mode("error")
        try:
            smoothed, _ = module.training_loss(batch.to("cuda"))
            (smoothed / batch.target_tokens).backward()
            optimizer.step()
            optimizer.zero_grad()
        finally:
            torch.cuda.set_sync_debug_mode("default")


def test_bf16_trains_as_fp32_does(tiny_config: Config) -> None:
    _, expected = fit(tiny_config, max_steps=7)
    module, losses = fit(override(tiny_config, precision="bf16"), max_steps=7)
    assert losses != expected
    assert losses == pytest.approx(expected, rel=0.02)
    assert flat(module).dtype == torch.float32


if __name__ == "__main__":
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        os.environ["DATA_CACHE"] = name
        written = golden_losses(folder_corpus(write_corpus(Path(name) / "numbers")))
    GOLDEN.write_text(json.dumps([round(loss, 6) for loss in written], indent=2) + "\n")
