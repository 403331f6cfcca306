"""Training with a bare Trainer: equals a manual loop, learns, resumes, stops on errors."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from random import Random
from typing import Any

import lightning.pytorch as lightning
import pytest
import torch
from torch import Tensor

from tests.samples import random_sentences, random_targets, tiny, write_pairs
from transformer.config import PAD_ID, Config, DecodingConfig, override
from transformer.data.batches import Batch, collate
from transformer.data.corpora.folders import folder_corpus
from transformer.data.module import TranslationDataModule
from transformer.evaluation.perplexity import perplexity, translate
from transformer.training.method import make_module
from transformer.training.module import TransformerModule
from transformer.training.optimizer import NonFiniteError, learning_rate

# The losses of the first steps of a tiny model with dropout on a corpus of numbers.
GOLDEN = [
    4.803326, 4.566526, 4.458464, 4.285600, 4.357763, 4.019234, 3.854709, 3.916141, 3.796307,
    3.685575, 3.730046, 3.604862, 3.463750, 3.500296, 3.384986, 3.337916, 3.392519, 3.516850,
    3.407122, 3.306924,
]  # fmt: skip


class Recorder(lightning.Callback):
    """Records the loss of every micro-batch and the metrics of every step."""

    def __init__(self) -> None:
        self.losses: list[float] = []
        self.metrics: dict[int, dict[str, float]] = {}

    def on_train_batch_end(self, trainer: lightning.Trainer, *args: Any, **kwargs: Any) -> None:
        """Record what training_step returned; the last micro-batch of a step counts."""
        self.losses.append(args[1]["loss"].item())
        if metrics := {name: value.item() for name, value in trainer.callback_metrics.items()}:
            self.metrics[trainer.global_step] = metrics


def trainer(max_steps: int, *callbacks: lightning.Callback, **options: Any) -> lightning.Trainer:
    """A Trainer as a user of the library would make one, without its output."""
    silent = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
    options = dict.fromkeys(silent, False) | options
    return lightning.Trainer(
        max_steps=max_steps, accelerator="cpu", callbacks=list(callbacks), **options
    )


def fit(
    config: Config, max_steps: int, checkpoint: Path | None = None, accumulate: int = 1
) -> tuple[TransformerModule, Recorder]:
    """Train from ``checkpoint``, if it exists; otherwise write it in the end."""
    module, recorder = make_module(config), Recorder()
    run = trainer(max_steps, recorder, accumulate_grad_batches=accumulate)
    begun = checkpoint if checkpoint and checkpoint.exists() else None
    run.fit(module, TranslationDataModule(config), ckpt_path=begun, weights_only=True)
    if checkpoint and not begun:
        run.save_checkpoint(checkpoint)
    return module, recorder


def flat(module: torch.nn.Module) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in module.parameters()])


@pytest.mark.slow
def test_twenty_golden_losses(tiny_config: Config) -> None:
    """Other machines and versions of torch add in another order: they agree to a thousandth."""
    _, trained = fit(override(tiny_config, dropout=0.1), max_steps=20)
    assert trained.losses == pytest.approx(GOLDEN, rel=1e-3)


@pytest.mark.slow
def test_training_equals_a_loop_written_by_hand(tiny_config: Config) -> None:
    """Two epochs of the plan; F.cross_entropy, equation 3 and Adam instead of ours."""
    steps = 31
    module, trained = fit(tiny_config, steps)

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
    assert trained.losses == pytest.approx(expected, rel=1e-4)
    torch.testing.assert_close(flat(module.model), flat(model), rtol=1e-3, atol=1e-4)


def test_only_the_seed_matters(tiny_config: Config) -> None:
    config = override(tiny_config, dropout=0.3)
    module, first = fit(config, max_steps=5)
    torch.manual_seed(12_345)
    before = torch.get_rng_state()
    TransformerModule(config)
    assert torch.equal(torch.get_rng_state(), before)
    again, second = fit(config, max_steps=5)
    assert second.losses == first.losses and torch.equal(flat(again), flat(module))
    _, other = fit(override(config, seed=4), max_steps=5)
    assert not set(other.losses) & set(first.losses)


def test_overfitting_takes_the_same_batches_again(tiny_config: Config) -> None:
    module, found = TransformerModule(override(tiny_config, learning_rate_factor=0.0)), Recorder()
    run = trainer(6, found, overfit_batches=3, limit_val_batches=0)
    run.fit(module, TranslationDataModule(tiny_config))
    assert found.losses[:3] == found.losses[3:]


# The most parts are more than a batch has pairs.
@pytest.mark.slow
@pytest.mark.parametrize(("accumulate", "steps"), [(4, 5), (37, 1)])
def test_accumulation_changes_no_step(accumulate: int, steps: int, tiny_config: Config) -> None:
    config = override(tiny_config, log_every_steps=1, clip_norm=1.0)
    module, expected = fit(config, steps)
    parted, found = fit(config, steps, accumulate=accumulate)
    names = {"loss", "train_perplexity", "learning_rate", "gradient_norm"}
    for step in range(1, steps + 1):
        assert names <= expected.metrics[step].keys()
        assert found.metrics[step] == pytest.approx(expected.metrics[step], rel=1e-4)
    torch.testing.assert_close(flat(parted), flat(module), rtol=1e-4, atol=2e-5)


# Lightning asks for a loader with a state; ours finds its place from the step alone.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:You're resuming from a checkpoint that ended before")
@pytest.mark.parametrize(("accumulate", "threads"), [(1, 2), (2, 1)])
def test_a_run_resumes_bit_for_bit_in_the_middle_of_an_epoch(
    accumulate: int,
    threads: int,
    tiny_config: Config,
    tmp_path: Path,
    set_threads: Callable[[int], None],
) -> None:
    set_threads(threads)
    config = override(tiny_config, dropout=0.3)
    whole, expected = fit(config, 9, accumulate=accumulate)
    fit(config, 5, tmp_path / "stop.ckpt", accumulate)
    resumed, rest = fit(config, 9, tmp_path / "stop.ckpt", accumulate)
    assert rest.losses == expected.losses[5 * accumulate :]
    assert torch.equal(flat(resumed), flat(whole))


@pytest.mark.slow
def test_a_tiny_task_is_learned(tmp_path: Path) -> None:
    """To write one or two digits as letters in reverse."""
    for seed, (split, count) in enumerate({"train": 3_001, "valid": 97}.items()):
        random = Random(seed)
        digits = [random.choices(range(10), k=random.randint(1, 2)) for _ in range(count)]
        letters = [" ".join("abcdefghij"[digit] for digit in reversed(row)) for row in digits]
        sources = [" ".join(map(str, row)) for row in digits]
        write_pairs(tmp_path, split, list(zip(sources, letters, strict=True)))
    config = override(
        tiny(folder_corpus(tmp_path)),
        vocab_size=45, num_layers=1, d_model=32, d_ff=64, num_heads=2, d_k=16, d_v=16,
        tokens_per_batch=301, warmup_steps=41, learning_rate_factor=0.3, label_smoothing=0.0,
        schedule="cosine", max_steps=231,
    )  # fmt: skip
    module, trained = fit(config, max_steps=231)
    assert sum(trained.losses[-7:]) / 7 < 0.05
    corpus = TranslationDataModule(config).corpus
    sources, references = corpus.text("valid")
    found = translate(module.model, corpus.vocabulary(), sources, DecodingConfig())
    right = sum(one == other for one, other in zip(found, references, strict=True))
    assert right >= 0.95 * len(references)


class Slower(lightning.Callback):
    """Halves the learning rate, as averaging weights or a user's schedule may change it."""

    def on_train_batch_start(self, trainer: lightning.Trainer, *args: Any, **kwargs: Any) -> None:
        """Before the first step."""
        trainer.optimizers[0].param_groups[0]["lr"] *= 0.5


def test_logged_metrics_are_means_over_real_word_pieces(tiny_config: Config) -> None:
    config = override(tiny_config, log_every_steps=1, validate_every_steps=1, clip_norm=0.5)
    module = TransformerModule(config)
    data = TranslationDataModule(config)
    torch.nn.init.normal_(module.model.embedding.weight)
    batch = next(iter(data.train_dataloader()))
    with torch.no_grad():
        smoothed, nll = (x.item() / batch.target_tokens for x in module.sums(batch))
    run = trainer(1, Slower(), num_sanity_val_steps=0, limit_val_batches=0)
    run.fit(module, data)
    logged = {name: value.item() for name, value in run.callback_metrics.items()}
    assert logged["loss"] == pytest.approx(smoothed)
    assert logged["train_perplexity"] == pytest.approx(math.exp(nll), rel=1e-5)
    assert logged["learning_rate"] == pytest.approx(learning_rate(1, 26, config.training) / 2)
    assert logged["gradient_norm"] > 0.5
    gradients = [p.grad for p in module.parameters() if p.grad is not None]
    assert torch.nn.utils.get_total_norm(gradients).item() == pytest.approx(0.5, rel=1e-4)


@pytest.mark.parametrize("overlong", [(), (3,)])
def test_validation_is_the_perplexity_of_the_set(
    overlong: tuple[int, ...], tiny_config: Config, tmp_path: Path
) -> None:
    """A pair that the perplexity leaves out is left out."""
    config = override(tiny_config, tokens_per_batch=41, dropout=0.3)
    path = tmp_path / "numbers" / "valid.de"
    lines = path.read_text(encoding="utf-8").splitlines()
    for line in overlong:
        lines[line] = "eins " * 3_000
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    module, data = TransformerModule(config), TranslationDataModule(config)
    (logged,) = trainer(1).validate(module, data, verbose=False)
    with pytest.warns(UserWarning, match="^line 4 has") if overlong else nullcontext():
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
    with pytest.raises(NonFiniteError, match=rf"step 5 \(batch 5, seed 3\) is {value}"):
        trainer(7).fit(module, TranslationDataModule(tiny_config))
    assert torch.equal(flat(module), before[0])


def test_no_checkpoint_follows_a_non_finite_gradient(tiny_config: Config, tmp_path: Path) -> None:
    """On a GPU steps do not wait for the norm, so it is checked before saving."""
    module = TransformerModule(tiny_config)
    run = trainer(2)
    run.fit(module, TranslationDataModule(tiny_config))
    module._norms.append((2, 2, torch.tensor(math.nan)))
    with pytest.raises(NonFiniteError, match=r"step 3 \(batch 3"):
        run.save_checkpoint(tmp_path / "broken.ckpt")
    assert not list(tmp_path.glob("*.ckpt"))


@pytest.mark.slow
def test_bf16_trains_as_fp32_does(tiny_config: Config) -> None:
    _, expected = fit(tiny_config, max_steps=7)
    module, found = fit(override(tiny_config, precision="bf16"), max_steps=7)
    assert found.losses != expected.losses
    assert found.losses == pytest.approx(expected.losses, rel=0.02)
    assert flat(module).dtype == torch.float32


@pytest.mark.parametrize(("precision", "tolerance"), [("64-true", 1e-5), ("bf16-true", 0.02)])
def test_a_trainer_may_convert_the_weights(
    precision: str, tolerance: float, tiny_config: Config
) -> None:
    _, expected = fit(tiny_config, max_steps=3)
    found = Recorder()
    data = TranslationDataModule(tiny_config)
    trainer(3, found, precision=precision).fit(TransformerModule(tiny_config), data)
    assert found.losses == pytest.approx(expected.losses, rel=tolerance)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.filterwarnings("ignore")  # the compiler's own
@pytest.mark.skipif(shutil.which("g++") is None, reason="the compiler needs one for C++")
def test_compiled_training_gives_the_same_loss_and_gradients(tiny_config: Config) -> None:
    """With batches of several shapes."""
    config = override(tiny_config, num_layers=1)
    eager, compiled = (TransformerModule(override(config, compile=c)) for c in (False, True))
    compiled.load_state_dict(eager.state_dict())
    for sources, targets in (([5, 3], [4, 7]), ([7, 2, 4], [2, 3, 9]), ([2], [3])):
        src, tgt = random_sentences(sources), random_targets(targets)
        batch = Batch(src=src, tgt=tgt, source_tokens=29, target_tokens=31)
        (one, nll), (other, other_nll) = eager.training_loss(batch), compiled.training_loss(batch)
        torch.testing.assert_close(one, other)
        torch.testing.assert_close(nll, other_nll)
        assert not other_nll.requires_grad
        ours = torch.autograd.grad(one, list(eager.parameters()))
        theirs = torch.autograd.grad(other, list(compiled.parameters()))
        torch.testing.assert_close(theirs, ours, rtol=1e-4, atol=1e-4)
