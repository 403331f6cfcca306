"""Steps in one piece, whose graphs a CPU emulates: it calls the captured function instead."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

import lightning.pytorch as lightning
import pytest
import torch
from torch import Tensor, nn

from tests.training.test_module import Recorder, fit, flat, trainer
from transformer.config import Config, override
from transformer.data.module import TranslationDataModule
from transformer.kernels import captured_step
from transformer.kernels.captured_step import CapturedStep
from transformer.model.encoder_decoder import FeedForward, Transformer
from transformer.training import module as training
from transformer.training import step_kinds, whole_step
from transformer.training.module import TransformerModule
from transformer.training.step_kinds import StepKind, wanted_kind
from transformer.training.whole_step import WholeStep
from transformer.variant import replace_parts, variant_name
from transformer.variants.fixed_weights import FixedHeadsTransformer
from transformer.variants.optimizers import Muon
from transformer.variants.positions import AlibiTransformer, RelativeTransformer

pytestmark = [
    pytest.mark.filterwarnings("ignore:.isinstance.treespec"),  # as torch imports its compiler
    # Lightning asks for a loader with a state; ours finds its place from the step alone.
    pytest.mark.filterwarnings("ignore:You're resuming from a checkpoint that ended before"),
]
CPU, CUDA = torch.device("cpu"), torch.device("cuda")


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take steps as on a GPU, without a compiler."""
    for module in (step_kinds, whole_step):
        monkeypatch.setattr(module, "can_capture", lambda device: True)
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)


def train(
    config: Config, steps: int, checkpoint: Path | None = None
) -> tuple[TransformerModule, Recorder]:
    """Train on one thread, as two draw other masks of dropout."""
    return fit(override(config, log_every_steps=1), steps, checkpoint)


def step_of(module: TransformerModule) -> CapturedStep:
    step = cast(WholeStep, module._whole_step)._step
    assert step is not None
    return step


@pytest.mark.parametrize(
    ("settings", "device", "is_whole", "kind"),
    [
        ({}, CUDA, True, "captured"),
        ({"d_model": 256}, CUDA, True, "packed"),
        ({"d_model": 256}, CUDA, False, "plain"),
        ({"d_model": 256}, CPU, True, "plain"),
        ({"d_model": 256, "compile": False}, CUDA, True, "plain"),
        ({"compile": True}, CUDA, True, "packed"),
        ({"compile": True}, CUDA, False, "compiled"),
        ({"compile": True}, CPU, True, "compiled"),
    ],
)
def test_the_kind_of_steps_follows_width_device_and_option(
    settings: dict[str, Any],
    device: torch.device,
    is_whole: bool,
    kind: StepKind,
    tiny_config: Config,
) -> None:
    assert wanted_kind(override(tiny_config, **settings), device, is_whole) == kind


@pytest.mark.slow
@pytest.mark.parametrize("clip_norm", [None, 0.5])
def test_captured_steps_are_those_of_the_plain_training(
    clip_norm: float | None, tiny_config: Config, graphs: None
) -> None:
    """Up to rounding, and in all that is logged; dropout draws the same masks."""
    config = override(tiny_config, dropout=0.2, clip_norm=clip_norm)
    plain, expected = train(override(config, compile=False), 23)
    module, found = train(config, 23)
    assert (plain.step_kind, module.step_kind) == ("plain", "captured")
    assert found.losses == pytest.approx(expected.losses, rel=1e-5)
    for step in range(1, 24):
        assert found.metrics[step] == pytest.approx(expected.metrics[step], rel=1e-4)
    torch.testing.assert_close(flat(module), flat(plain), rtol=1e-3, atol=1e-5)
    assert step_of(module).graphs > 1  # of several shapes
    (group,) = module.trainer.optimizers[0].param_groups
    assert type(group["lr"]) is float and not group["capturable"]


@pytest.mark.slow
@pytest.mark.parametrize("compile", [None, True], ids=["captured", "packed"])
def test_replays_change_nothing_and_a_training_resumes_bit_for_bit(
    compile: bool | None,
    tiny_config: Config,
    graphs: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = override(tiny_config, dropout=0.3, compile=compile)
    whole, expected = train(config, 17)
    train(config, 9, tmp_path / "stop.ckpt")
    resumed, rest = train(config, 17, tmp_path / "stop.ckpt")
    assert rest.losses == expected.losses[9:]
    assert torch.equal(flat(resumed), flat(whole))
    assert step_of(whole).graphs >= 1
    monkeypatch.setattr(whole_step, "_may_capture", lambda step, kind: False)
    launched, _ = train(config, 17)
    assert step_of(launched).graphs == 0
    assert torch.equal(flat(launched), flat(whole))


@pytest.mark.slow
def test_each_graph_keeps_the_table_of_positions_that_it_reads(
    tiny_config: Config, graphs: None
) -> None:
    """A longer sentence replaces the model's own."""
    config = override(tiny_config, max_positions=2)
    module, _ = train(config, 31)
    replays = step_of(module)._replays
    assert len(replays) > 1
    for (_, tgt), replay in replays.items():
        (table,) = (each for each in replay._kept if each.shape[1:] == (config.model.d_model,))
        assert len(table) >= tgt[1] - 1


@pytest.mark.slow
def test_a_training_continues_as_it_began(
    tiny_config: Config, graphs: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(override(tiny_config, compile=True), 3, tmp_path / "packed.ckpt")
    module, _ = train(tiny_config, 5, tmp_path / "packed.ckpt")
    assert module.step_kind == "packed"
    train(override(tiny_config, compile=False), 3, tmp_path / "plain.ckpt")
    module, _ = train(tiny_config, 5, tmp_path / "plain.ckpt")
    assert module.step_kind == "plain"
    monkeypatch.undo()  # a machine without a GPU
    with pytest.warns(UserWarning, match="steps are plain: training began with packed steps"):
        module, _ = train(tiny_config, 5, tmp_path / "packed.ckpt")
    assert module.step_kind == "plain"


@pytest.mark.parametrize("options", [{"accumulate_grad_batches": 2}, {"gradient_clip_val": 1.0}])
def test_a_trainer_that_acts_within_steps_gets_plain_ones(
    options: dict[str, Any], tiny_config: Config, graphs: None
) -> None:
    module = TransformerModule(tiny_config)
    trainer(2, **options).fit(module, TranslationDataModule(tiny_config))
    assert module.step_kind == "plain"


class ReadsGradients(lightning.Callback):
    """A callback that acts between backward and the optimizer's step."""

    def on_before_optimizer_step(self, *args: Any, **kwargs: Any) -> None:
        assert any(weight.grad is not None for weight in args[1].parameters())


def test_a_callback_that_reads_gradients_finds_them(tiny_config: Config, graphs: None) -> None:
    module = TransformerModule(tiny_config)
    trainer(2, ReadsGradients()).fit(module, TranslationDataModule(tiny_config))
    assert module.step_kind == "plain"


@pytest.mark.slow
def test_another_optimizer_steps_after_the_replay(tiny_config: Config, graphs: None) -> None:
    config = override(tiny_config, method=variant_name(Muon))
    _, expected = train(override(config, compile=False), 17)
    module, found = train(config, 17)
    assert module.step_kind == "captured" and step_of(module).graphs > 1
    assert found.losses == pytest.approx(expected.losses, rel=1e-3)


@pytest.mark.parametrize("variant", [RelativeTransformer, AlibiTransformer, FixedHeadsTransformer])
def test_a_model_that_adds_a_bias_to_the_mask_trains_padded(
    variant: type[Transformer], tiny_config: Config, graphs: None
) -> None:
    config = override(tiny_config, compile=True, model=variant_name(variant))
    with pytest.warns(UserWarning, match="steps are compiled: .* takes no packed sentences"):
        module, _ = train(config, 2)
    assert module.step_kind == "compiled"


class Mixing(FeedForward):
    """Sees the position before, across the borders of packed sentences; at first it adds 0."""

    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__(d_model, d_ff)
        self.gate = nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x + self.gate * x.roll(1, 1))


class Drawing(FeedForward):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * (1.0 + 0.0 * random.random())


class Counting(FeedForward):
    calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return super().forward(x) / self.calls


class Steady(FeedForward):
    """A user's own, with an attribute that cannot be pickled."""

    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__(d_model, d_ff)
        self.activation: Callable[[Tensor], Tensor] = lambda x: x

    def forward(self, x: Tensor) -> Tensor:
        return self.activation(super().forward(x))


@pytest.mark.parametrize(
    ("part", "compile", "kind", "said"),
    [
        (Mixing, True, "compiled", "steps are compiled: .* mixes sentences that are packed"),
        (Drawing, None, "plain", "steps are plain: .* draws or counts in Python"),
        (Counting, None, "plain", "steps are plain: .* draws or counts in Python"),
        (Drawing, True, "packed", "steps are not captured: .* draws or counts in Python"),
        (Steady, None, "captured", None),
        (Steady, True, "packed", None),
    ],
)
def test_a_model_of_ones_own_is_captured_and_packed_only_where_that_changes_nothing(
    part: type[FeedForward],
    compile: bool | None,
    kind: StepKind,
    said: str | None,
    tiny_config: Config,
    graphs: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def build_own(config: Any) -> Transformer:
        model = Transformer(config)
        replace_parts(model, FeedForward, lambda _: part(config.d_model, config.d_ff))
        return model

    monkeypatch.setattr(training, "build", build_own)
    if said is None:
        module, _ = train(override(tiny_config, compile=compile), 4)
    else:
        with pytest.warns(UserWarning, match=said):
            module, _ = train(override(tiny_config, compile=compile), 4)
    assert module.step_kind == kind


def test_where_there_is_no_compiler_steps_are_padded(
    tiny_config: Config, graphs: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compiled(function: Any, **_: Any) -> Callable[..., Any]:
        def call(*_: Any) -> None:
            raise FileNotFoundError("no C compiler\nand a long explanation")

        return call

    monkeypatch.setattr(torch, "compile", compiled)
    config = override(tiny_config, d_model=256)
    with pytest.warns(UserWarning, match=r"steps are plain: no C compiler$"):
        module, _ = train(config, 2)
    assert module.step_kind == "plain"


@pytest.mark.slow
def test_where_capturing_fails_steps_are_launched(
    tiny_config: Config, graphs: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, _ = train(tiny_config, 13)
    assert step_of(expected).graphs > 0

    def fail(*_: Any) -> None:
        raise RuntimeError("operation not permitted when stream is capturing\nand more")

    monkeypatch.setattr(captured_step, "Replay", fail)
    with pytest.warns(UserWarning, match=r"not captured any more: operation .* is capturing$"):
        module, _ = train(tiny_config, 13)
    assert step_of(module).graphs == 0
    assert torch.equal(flat(module), flat(expected))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # the compiler's own
def test_packed_steps_are_one_graph(tiny_config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (step_kinds, whole_step):
        monkeypatch.setattr(module, "can_capture", lambda device: True)
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    found, _ = train(override(tiny_config, num_layers=1, compile=True), 6)
    assert found.step_kind == "packed" and step_of(found).graphs == 1
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
    assert not torch._dynamo.utils.counters["graph_break"]
