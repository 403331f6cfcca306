"""The ways to compute a training step.

``plain``
    one operation after another on padded batches, on any device
``compiled``
    padded batches, the operations between products fused by ``torch.compile``
``captured``
    padded batches, the whole step as one CUDA graph for each shape: fastest below ``d_model`` 256,
    where a step takes longer to launch than to run
``packed``
    sentences laid end to end in one shape, compiled, and captured as one CUDA graph

The last two are for one CUDA device that takes whole batches. Each kind rounds differently, so a
training continues with the one that it began with. Its result names it, but two runs that differ in
nothing else count as equal.
"""

from __future__ import annotations

import pickle
import random
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from copy import deepcopy
from typing import Literal, cast

import lightning.pytorch as lightning
import numpy as np
import torch
from lightning.pytorch.utilities.model_helpers import is_overridden
from torch import nn

from transformer.config import BOS_ID, EOS_ID, PAD_ID, Config
from transformer.data.batches import Batch
from transformer.kernels.sentence_attention import can_serve
from transformer.model.attention import MultiHeadAttention
from transformer.model.encoder_decoder import Transformer, evaluating
from transformer.training.packing import pack, unpack

StepKind = Literal["plain", "compiled", "captured", "packed"]

# d_model from which a step's operations take longer to run than to launch.
_WIDE = 256
# Hooks of callbacks that a step in one piece would not call.
_HOOKS = (
    "on_before_zero_grad",
    "on_before_backward",
    "on_after_backward",
    "on_before_optimizer_step",
)
#: What steps in one piece leave out: a method that replaces one of these takes plain ones.
OF_STEPS = (
    *("states", "loss", "sums", "training_loss", "training_step", "per_target", "backward"),
    *("optimizer_step", "optimizer_zero_grad", "configure_gradient_clipping"),
    *_HOOKS,
    *("on_before_batch_transfer", "transfer_batch_to_device", "on_after_batch_transfer"),
)
# Rounding changes states by a hundred-thousandth; a token that sees another sentence by a tenth.
_LARGEST_DIFFERENCE = 1e-3
_LENGTHS = ((7, 3), (1, 11), (29, 23), (2, 2), (13, 17))  # of sources and targets that are tried


class NotPossibleError(Exception):
    """A model cannot take its steps in a faster way. The message says why."""


def wanted_kind(config: Config, device: torch.device, is_whole: bool) -> StepKind:
    """The kind of a new training on ``device``.

    Args:
        is_whole: whether this one device takes each batch as a whole, and nothing acts within steps
    """
    compile = config.training.compile
    if compile is not False and is_whole and can_capture(device):
        return "packed" if compile or config.model.d_model >= _WIDE else "captured"
    return "compiled" if compile else "plain"


def can_capture(device: torch.device) -> bool:
    """Whether a step can be captured as a graph on this device."""
    return device.type == "cuda"


def takes_whole_batches(trainer: lightning.Trainer) -> bool:
    """Whether one device takes whole batches, and nothing but this project acts within a step."""
    callbacks = cast(list[lightning.Callback], getattr(trainer, "callbacks", []))
    for hook in _HOOKS:
        if any(is_overridden(hook, callback, lightning.Callback) for callback in callbacks):
            return False
    is_alone = trainer.world_size == 1 and trainer.accumulate_grad_batches == 1
    return is_alone and trainer.gradient_clip_val is None and trainer.precision == "32-true"


def check_packing(model: Transformer) -> None:
    """Compare the decoder's states of packed sentences with those of padded ones.

    Noise is added to the weights of a copy, as weights that begin at zero would hide differences.

    Raises:
        NotPossibleError: if they differ, or the model takes no packed sentences.
    """
    device = model.output.weight.device
    config = model.config
    for part in model.modules():
        if isinstance(part, MultiHeadAttention) and not can_serve(device, part.d_k, part.d_v):
            raise NotPossibleError(
                f"no kernel packs heads of d_k {part.d_k} and d_v {part.d_v} here"
            )
    copy = deepcopy(model).float()
    generator = torch.Generator(device).manual_seed(1)
    with torch.no_grad(), evaluating(copy), torch.autocast(device.type, enabled=False):
        for weight in copy.parameters():
            noise = torch.randn(weight.shape, device=device, generator=generator)
            weight += noise * 0.02
        batch = small_batch(config.vocab_size)
        moved = batch.to(device)
        is_real = moved.tgt[:, 1:].ne(PAD_ID)
        expected = copy.states(moved.src, moved.tgt[:, :-1])[is_real]
        longest = int(np.max(_LENGTHS))
        packed = pack(batch, size=128, longest=longest)
        assert packed is not None
        try:
            source, target, targets = unpack(packed.to(device).tensors, longest)
            states = copy.states(source, target)[0, targets.ne(PAD_ID)]
        except Exception as error:
            raise NotPossibleError(f"{type(model).__name__} takes no packed sentences") from error
    # Not >, as a comparison with NaN is false.
    if not (states - expected).norm() <= _LARGEST_DIFFERENCE * expected.norm():
        raise NotPossibleError(f"{type(model).__name__} mixes sentences that are packed")


def small_batch(vocab_size: int) -> Batch:
    """A few sentences of different lengths on the CPU."""
    draw = np.random.default_rng(1)
    longest = np.max(_LENGTHS, axis=0)
    sides = [np.full((len(_LENGTHS), width), PAD_ID) for width in longest]
    for row, lengths in enumerate(_LENGTHS):
        for side, length in zip(sides, lengths, strict=True):
            side[row, :length] = draw.integers(EOS_ID, vocab_size, length)
    source_tokens, target_tokens = np.sum(_LENGTHS, axis=0).tolist()
    return Batch(
        src=torch.from_numpy(sides[0]),
        tgt=torch.from_numpy(np.insert(sides[1], 0, BOS_ID, axis=1)),
        source_tokens=source_tokens,
        target_tokens=target_tokens,
    )


def check_capturing(model: nn.Module, step: Callable[[], None]) -> None:
    """Check that a step of ``model`` does the same each time, unless all its parts are ours.

    A graph repeats what the device did. What Python did is lost: a draw from a generator of the
    CPU, a counter, or a choice that depends on numbers, which are read from the device.

    Args:
        step: computes the gradient of a batch

    Raises:
        NotPossibleError: if it does not.
    """
    if all(_is_known(type(module)) for module in model.modules()):
        return
    name = type(model).__name__
    before = _state_of_host(model)
    try:
        with _without_waiting(next(model.parameters()).device):
            step()
    except RuntimeError as error:
        raise NotPossibleError(f"{name} reads numbers from the GPU") from error
    if _state_of_host(model) != before:
        raise NotPossibleError(f"{name} draws or counts in Python")


def _is_known(kind: type) -> bool:
    return kind.__module__.partition(".")[0] in ("torch", "transformer")


@contextmanager
def _without_waiting(device: torch.device) -> Generator[None]:
    """Raise an error where a number is read from the device."""
    if device.type != "cuda":
        yield
        return
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def _state_of_host(model: nn.Module) -> list[object]:
    """The state that a step may change besides tensors of the device: generators, and all
    attributes of the model's modules, their classes and their files.
    """
    of_torch = torch.default_generator.get_state().numpy().tobytes()
    state: list[object] = [random.getstate(), _frozen(np.random.get_state()), of_torch]
    of_any_module = vars(nn.Module())  # weights, buffers and the like
    for module in model.modules():
        kind = type(module)
        if _is_known(kind):
            continue
        for owner in (module, kind, sys.modules[kind.__module__]):
            for name, value in [*vars(owner).items()]:
                if name not in of_any_module and not name.startswith("__"):
                    state.append((name, _frozen(value)))
    return state


def _frozen(value: object) -> object:
    """The content of a value, or which object it is."""
    if isinstance(value, torch.Tensor):
        return id(value), value._version
    try:
        return pickle.dumps(value)
    except Exception:  # a module, a lambda: any type may refuse in its own way
        return id(value)
