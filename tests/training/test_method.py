"""Methods: what they may replace, that nothing goes past them, and which are refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import lightning.pytorch as lightning
import pytest
import torch
from torch import Tensor
from torch.optim import Optimizer

from ablations.tables.changes import class_changes, with_changes
from tests.samples import all_but_first_slow
from tests.training.test_module import Recorder, flat, trainer
from tests.training.test_whole_step import graphs
from transformer.config import Config, override
from transformer.data.batches import Batch
from transformer.data.module import TranslationDataModule
from transformer.errors import InputError
from transformer.model.encoder_decoder import Transformer
from transformer.training.checkpoints import average_weights
from transformer.training.method import check_classes, make_module
from transformer.training.module import TransformerModule
from transformer.variant import FILES_VARIABLE, build, current, current_name, variant_name
from transformer.variants.averages import LatestWeights
from transformer.variants.lion import Lion
from transformer.variants.modern import ModernTransformer
from transformer.variants.nadam import NAdamW
from transformer.variants.optimizers import AdamW, Muon
from transformer.variants.schedule_free import ScheduleFree
from transformer.variants.soap import Soap

__all__ = ["graphs"]

# The names of earlier versions, and what they are now.
MOVED = {
    "transformer.variants.optimizers:AdamWTransformer@576340d0": (None, AdamW),
    "transformer.variants.optimizers:MuonTransformer@ff84ac14": (None, Muon),
    "transformer.variants.modern:ModernTransformer@70af332f": (ModernTransformer, AdamW),
}


class Doubled(TransformerModule):
    """Twice the loss, which is twice the gradient, clipped to the same."""

    def loss(self, states: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        smoothed, nll = super().loss(states, targets)
        return 2 * smoothed, nll


class Slow(TransformerModule):
    def learning_rate(self, step: int) -> float:
        return 0.25 * super().learning_rate(step)


class Frozen(TransformerModule):
    """Trains the embedding alone."""

    def optimizer(self) -> Optimizer:
        return torch.optim.SGD(self.model.embedding.parameters(), lr=1.0)


class Twice(TransformerModule):
    """Two passes, whose dropout differs, with a step around the paper's."""

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        first, second = (super(Twice, self).training_step(batch, batch_idx) for _ in range(2))
        self.passes = first.item(), second.item()
        return (first + second) / 2


class Bare(TransformerModule):
    """A step that logs nothing itself."""

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        states, targets = self.states(batch)
        smoothed, _ = self.loss(states, targets)
        return smoothed / batch.target_tokens


class Averaged(TransformerModule):
    """The mean of all weights since the first step is scored."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.taken = 0
        self.mean = {name: torch.zeros_like(x) for name, x in self.model.state_dict().items()}

    def on_train_batch_end(self, *args: Any, **kwargs: Any) -> None:
        self.taken += 1
        for name, weight in self.model.state_dict().items():
            self.mean[name].lerp_(weight, 1 / self.taken)

    def scored_weights(self) -> Mapping[str, Tensor]:
        return self.mean


def fit(
    module: TransformerModule, steps: int = 7, **options: Any
) -> tuple[TransformerModule, Recorder, lightning.Trainer]:
    recorder = Recorder()
    run = trainer(steps, recorder, **options)
    run.fit(module, TranslationDataModule(module.config))
    return module, recorder, run


@pytest.fixture
def config(tiny_config: Config) -> Config:
    return override(tiny_config, dropout=0.2, log_every_steps=1)


def test_a_loss_is_trained_on_and_validation_stays_the_papers(config: Config) -> None:
    config = override(config, clip_norm=1e-6)
    plain, expected, plain_run = fit(TransformerModule(config), val_check_interval=7)
    doubled, found, run = fit(Doubled(config), val_check_interval=7)
    assert found.losses[0] == pytest.approx(2 * expected.losses[0])
    torch.testing.assert_close(flat(doubled), flat(plain), rtol=1e-3, atol=1e-5)
    for name in ("train_perplexity", "valid_perplexity"):
        theirs = plain_run.callback_metrics[name].item()
        assert run.callback_metrics[name].item() == pytest.approx(theirs, rel=1e-4)


@pytest.mark.slow
def test_a_learning_rate_and_an_optimizer_are_used(config: Config) -> None:
    _, plain, _ = fit(TransformerModule(config))
    _, slow, _ = fit(Slow(config))
    for step in range(1, 8):
        rates = slow.metrics[step]["learning_rate"], plain.metrics[step]["learning_rate"]
        assert rates[0] == pytest.approx(rates[1] / 4)
    before = Frozen(config).model.state_dict()
    after = fit(Frozen(config))[0].model.state_dict()
    assert {name for name in before if not torch.equal(before[name], after[name])} == {
        "embedding.weight"
    }


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 2])
def test_two_passes_of_a_step_draw_different_masks_which_belong_to_the_batch(
    threads: int, config: Config, set_threads: Callable[[int], None]
) -> None:
    set_threads(threads)
    module, found, _ = fit(Twice(config), 3)
    assert isinstance(module, Twice) and module.passes[0] != module.passes[1]
    again, same, _ = fit(Twice(config), 3)
    assert same.losses == found.losses and torch.equal(flat(again), flat(module))


@pytest.mark.slow
def test_a_step_that_logs_nothing_is_logged_all_the_same(config: Config) -> None:
    _, expected, _ = fit(TransformerModule(config))
    _, found, _ = fit(Bare(config))
    assert found.losses == pytest.approx(expected.losses, rel=1e-5)
    for step in range(1, 8):
        assert found.metrics[step]["loss"] == pytest.approx(found.losses[step - 1])
        assert found.metrics[step]["train_perplexity"] != found.metrics[step]["train_perplexity"]


def test_a_step_that_returns_no_loss_is_refused(config: Config) -> None:
    class Empty(TransformerModule):
        def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
            return None  # pyright: ignore[reportReturnType]

    with pytest.raises(InputError, match="training_step of Empty returned NoneType: return one"):
        fit(Empty(config))


@pytest.mark.slow
@pytest.mark.parametrize(("compile", "kind"), [(None, "plain"), (True, "compiled")])
@pytest.mark.parametrize("method", all_but_first_slow([Doubled, Twice, Bare, LatestWeights]))
def test_steps_in_one_piece_do_not_go_past_a_method(
    method: type[TransformerModule], compile: bool | None, kind: str, config: Config, graphs: None
) -> None:
    module, found, _ = fit(method(override(config, compile=compile)))
    assert module.step_kind == kind
    _, expected, _ = fit(method(override(config, compile=False)))
    assert found.losses == expected.losses


@pytest.mark.slow
@pytest.mark.parametrize("method", [Slow, Frozen, NAdamW, Lion, ScheduleFree, Soap])
def test_steps_in_one_piece_take_a_methods_optimizer_and_learning_rate(
    method: type[TransformerModule], config: Config, graphs: None
) -> None:
    module, found, _ = fit(method(config))
    assert module.step_kind == "captured"
    _, expected, _ = fit(method(override(config, compile=False)))
    assert found.losses == pytest.approx(expected.losses, rel=1e-4)


@pytest.mark.slow
def test_the_weights_to_score_are_validated_and_written(config: Config, tmp_path: Path) -> None:
    plain, _, _ = fit(TransformerModule(config), val_check_interval=7)
    module, _, run = fit(Averaged(config), val_check_interval=7)
    assert isinstance(module, Averaged) and torch.equal(flat(module.model), flat(plain.model))
    run.save_checkpoint(tmp_path / "end.ckpt")
    scored = average_weights([tmp_path / "end.ckpt"])
    torch.testing.assert_close(scored, module.mean)
    model = build(config.model)
    model.load_state_dict(scored)
    validated = TransformerModule(config)
    validated.model = model
    (found,) = trainer(1).validate(validated, TranslationDataModule(config), verbose=False)
    metrics = run.callback_metrics
    assert found["valid_perplexity"] == pytest.approx(metrics["valid_perplexity"].item())


@pytest.mark.slow
def test_the_latest_weights_are_averaged_once_they_are_taken(config: Config) -> None:
    """Of nine steps every second is taken: after five there are two copies, after nine the last
    three.
    """
    recorded: list[Tensor] = []

    class Recorded(LatestWeights):
        def on_train_batch_end(self, *args: Any, **kwargs: Any) -> None:
            recorded.append(flat(self.model).clone())

    for steps, taken in ((1, []), (5, [2, 4]), (9, [4, 6, 8])):
        recorded.clear()
        module = Recorded(override(config, max_steps=9), k=3, every=0.2)
        fit(module, steps)
        weights = module.scored_weights()
        assert (weights is None) == (not taken)
        if weights is not None:
            scored = build(config.model)
            scored.load_state_dict(weights)
            expected = torch.stack([recorded[step - 1] for step in taken]).mean(0)
            torch.testing.assert_close(flat(scored), expected)


def test_the_average_of_schedule_free_training_is_validated(config: Config) -> None:
    module, _, run = fit(ScheduleFree(config), val_check_interval=7)
    scored = module.scored_weights()
    assert scored is not None
    validated = TransformerModule(config)
    validated.model.load_state_dict(scored)
    assert not torch.equal(flat(validated.model), flat(module.model))
    (found,) = trainer(1).validate(validated, TranslationDataModule(config), verbose=False)
    expected = run.callback_metrics["valid_perplexity"].item()
    assert found["valid_perplexity"] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("def forward(self, x): pass", "has forward, which is not called: docs/variants.md says"),
        ("def encode(self, src, mask): pass", r"has encode, .*the model, .*row\(…, model=…\)"),
        ("schedule = 'cosine'", r"has schedule, .*write learning_rate\(self, step\)"),
        ("def test_step(self, batch): pass", "has test_step, which is not called"),
    ],
)
def test_what_nobody_calls_is_refused(
    body: str, message: str, config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FILES_VARIABLE, "")
    path = tmp_path / "mine.py"
    path.write_text(
        "from transformer import TransformerModule\n\n\n"
        f"class Mine(TransformerModule):\n    {body}\n"
    )
    with pytest.raises(InputError, match=f"Mine in .*mine.py {message}"):
        check_classes(override(config, method=variant_name(f"{path}:Mine")))


def test_a_model_is_no_method_and_the_other_way_round(config: Config) -> None:
    model, method = variant_name(ModernTransformer), variant_name(Muon)
    with pytest.raises(InputError, match=r"is not a subclass of transformer\.TransformerModule"):
        check_classes(override(config, method=model))
    with pytest.raises(InputError, match=r"is not a subclass of transformer\.Transformer, which"):
        check_classes(override(config, model=method))
    with pytest.raises(InputError, match=r"names a method: make_module\(config\) makes it"):
        TransformerModule(override(config, method=method))


@pytest.mark.parametrize(("name", "now"), MOVED.items(), ids=[*MOVED])
def test_a_name_of_an_earlier_version_is_what_replaces_it(
    name: str, now: tuple[type[Transformer] | None, type[TransformerModule]], config: Config
) -> None:
    model, method = now
    old = override(config, model=name)
    changes = class_changes("model", model) | class_changes("method", method)
    new = with_changes(config, changes)
    assert current(old) == current(new) == new and current_name(name) == name
    module, same = make_module(old), make_module(new)
    assert type(module) is method and type(module.model) is (model or Transformer)
    torch.testing.assert_close(module.state_dict(), same.state_dict(), rtol=0, atol=0)
    assert type(module.optimizer()) is type(same.optimizer())
