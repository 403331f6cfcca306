"""Find and make the method that trains a configuration."""

from __future__ import annotations

import inspect

from transformer.config import Config
from transformer.errors import InputError, in_one_line
from transformer.model.encoder_decoder import Transformer
from transformer.training.module import TransformerModule
from transformer.variant import current, load, load_variant

# Lightning's names that neither training nor scoring calls here.
_NOT_CALLED = (
    *("forward", "test_step", "predict_step", "prepare_data", "lr_scheduler_step"),
    *("train_dataloader", "val_dataloader", "test_dataloader", "predict_dataloader"),
    *("on_test_start", "on_test_end", "on_predict_start", "on_predict_end", "schedule"),
)


def check_classes(config: Config) -> None:
    """Load the model and the method that ``config`` names, so that unusable ones are refused."""
    now = current(config)
    method_of(now)
    if now.model.model is not None:
        load_variant(now.model.model)


def method_of(config: Config) -> type[TransformerModule]:
    """The class that trains with ``config``."""
    name = config.training.method
    if name is None:
        return TransformerModule
    method = load(name, TransformerModule, "method")
    _refuse_unused(method)
    return method


def make_module(config: Config) -> TransformerModule:
    """The model of ``config`` with the method that trains it."""
    now = current(config)
    kind, options = method_of(now), dict(now.training.method_options)
    if kind is TransformerModule:
        return kind(config)
    try:
        return kind(config, **options)
    except InputError:
        raise
    except Exception as error:  # any failure of a user's class is bad input
        message = in_one_line(error)
        raise InputError(f"{kind.__name__} cannot be made: {message}") from error


def _refuse_unused(method: type[TransformerModule]) -> None:
    """Refuse what is named like a part of the model, or like a hook that is never called."""
    own = [kind for kind in method.__mro__ if kind not in TransformerModule.__mro__]
    for name in sorted({name for kind in own for name in vars(kind)}):
        of_model = hasattr(Transformer, name) and not hasattr(TransformerModule, name)
        if name not in _NOT_CALLED and not of_model:
            continue
        hint = "docs/variants.md says what a method may replace"
        if of_model:
            hint = "it is a part of the model, a subclass of Transformer: row(…, model=…)"
        if name == "schedule":
            hint = "write learning_rate(self, step), or set schedule of the configuration"
        source = inspect.getfile(method)
        raise InputError(f"{method.__name__} in {source} has {name}, which is not called: {hint}")
