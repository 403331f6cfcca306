"""The configuration; its defaults are the paper's base model."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import math
import re
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar, cast, get_type_hints

from transformer.corpus import Corpus
from transformer.errors import InputError, unknown_name
from transformer.fields import NO_OPTIONS, Options, fits, takes

T = TypeVar("T")

# The first word-pieces of every vocabulary: padding, unknown, begin and end of a sentence.
PAD_ID, UNK_ID, BOS_ID, EOS_ID = range(4)

Positions = Literal["sinusoidal", "learned"]
Precision = Literal["auto", "bf16", "fp32"]
Schedule = Literal["inverse_sqrt", "linear", "cosine"]

# What a field must be, by its name.
_AT_LEAST = {
    **dict.fromkeys(("num_layers", "d_model", "d_ff", "num_heads", "d_k", "d_v"), 1),
    **dict.fromkeys(("max_positions", "max_length_ratio", "max_steps", "warmup_steps"), 1),
    **dict.fromkeys(("checkpoint_every_steps", "validate_every_steps", "log_every_steps"), 1),
    **dict.fromkeys(("average_checkpoints", "threads", "beam_size"), 1),
    **dict.fromkeys(("seed", "learning_rate_factor", "length_penalty", "max_extra_length"), 0),
    **{"vocab_size": 8, "max_length": 2, "also_average": 2},
}
_ABOVE_0 = ("adam_epsilon", "clip_norm", "checkpoint_every_minutes")
_FRACTIONS = ("dropout", "label_smoothing", "adam_beta1", "adam_beta2")


def _check(condition: bool, name: str, value: object, expected: str) -> None:
    if not condition:
        raise InputError(f"{name} is {value!r}, but must be {expected}")


def _check_fields(config: Any) -> None:
    """Check each field against its type and the tables above; None means that a setting is off."""
    for each in dataclasses.fields(config):
        name, value = each.name, getattr(config, each.name)
        _, kind = config_fields()[name]
        _check(fits(value, kind), name, value, takes(kind))
        if value is None:
            continue
        if name in _AT_LEAST:
            _check(_AT_LEAST[name] <= value < math.inf, name, value, f"at least {_AT_LEAST[name]}")
        elif name in _ABOVE_0:
            _check(0 < value < math.inf, name, value, "above 0")
        elif name in _FRACTIONS:
            _check(0.0 <= value < 1.0, name, value, "at least 0 and below 1")
        if isinstance(value, int):  # larger ones overflow in torch
            bits = 63 if name == "seed" else 31
            _check(value < 2**bits, name, value, f"below 2**{bits}")


def _check_class(field: str, name: str | None) -> None:
    """Check the name of a class, if one is named."""
    if name is None:
        return
    # A file may have any name, but no characters that could change a terminal.
    named = name.isprintable() and re.fullmatch(r"[^:@]+:\w+@\w+", name)
    _check(bool(named), field, name, "as transformer.variant_name names it")


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelConfig:
    """Section 3 and the columns of Table 3.

    ``d_k`` and ``d_v`` are widths per head and need not multiply with ``num_heads`` to
    ``d_model``. ``vocab_size`` is the number of word-pieces, which both languages share. There are
    ``max_positions`` learned positions; later words share the last one. ``model`` names a variant,
    see ``transformer.variant``, and ``options`` its arguments; None is the paper's model.
    """

    vocab_size: int = 37_000
    num_layers: int = 6
    d_model: int = 512
    d_ff: int = 2048
    num_heads: int = 8
    d_k: int = 64
    d_v: int = 64
    dropout: float = 0.1
    positions: Positions = "sinusoidal"
    max_positions: int = 512
    model: str | None = None
    options: Options = NO_OPTIONS

    def __post_init__(self) -> None:
        _check_fields(self)
        _check_class("model", self.model)
        _check(self.d_model % 2 == 0, "d_model", self.d_model, "even (pairs of sine and cosine)")


@dataclass(frozen=True, kw_only=True, slots=True)
class DataConfig:
    """Section 5.1.

    An optimizer step, over all devices, has about ``tokens_per_batch`` real tokens on the longer
    side, source or target. Training leaves out pairs with a side of more than ``max_length``
    word-pieces, pairs with one side more than ``max_length_ratio`` times as long as the other (the
    paper states no such limit) and, with ``drop_duplicates``, all but the first of equal pairs.
    """

    corpus: Corpus
    tokens_per_batch: int = 25_000
    max_length: int = 256
    max_length_ratio: float | None = None
    drop_duplicates: bool = False

    def __post_init__(self) -> None:
        _check_fields(self)
        _check(
            self.tokens_per_batch >= self.max_length,
            "tokens_per_batch",
            self.tokens_per_batch,
            f"at least max_length ({self.max_length}), or the longest pair fits no batch",
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingConfig:
    """Sections 5.2 to 5.4.

    ``schedule`` is equation 3 or, for short runs, its warm-up followed by a straight line or half a
    cosine to zero at ``max_steps``; ``learning_rate_factor`` multiplies any. ``precision`` ``auto``
    is bf16 where that is faster: from ``d_model`` 256 on GPUs that multiply it, from 128 on such
    CPUs. ``threads`` is the number of CPU threads per process, None for torch's choice; another
    number rounds differently, and one thread draws other dropout masks than several. ``clip_norm``
    bounds the norm of the gradient (the paper does not clip). ``average_checkpoints`` is how many
    of the last checkpoints are averaged for evaluation (section 6.1; 1 for Table 3); the average of
    ``also_average`` of them is scored on the validation set as well. Checkpoints are written every
    ``checkpoint_every_steps`` or, if set, every ``checkpoint_every_minutes`` of training, which is
    10 in the paper. ``compile`` lets ``torch.compile`` fuse the operations between the matrix
    products, which changes rounding and dropout masks; by default it does so from ``d_model`` 256
    on one GPU, and False leaves out CUDA graphs too, see :mod:`transformer.training.step_kinds`.
    ``method`` names a subclass of ``TransformerModule`` that trains in another way, and
    ``method_options`` its arguments; None is the paper's method.
    """

    seed: int = 1
    max_steps: int = 100_000
    warmup_steps: int = 4_000
    schedule: Schedule = "inverse_sqrt"
    learning_rate_factor: float = 1.0
    adam_beta1: float = 0.9
    adam_beta2: float = 0.98
    adam_epsilon: float = 1e-9
    label_smoothing: float = 0.1
    clip_norm: float | None = None
    precision: Precision = "auto"
    threads: int | None = None
    compile: bool | None = None
    average_checkpoints: int = 1
    also_average: int | None = None
    checkpoint_every_steps: int = 1_000
    checkpoint_every_minutes: float | None = None
    validate_every_steps: int = 1_000
    log_every_steps: int = 50
    method: str | None = None
    method_options: Options = NO_OPTIONS

    def __post_init__(self) -> None:
        _check_fields(self)
        _check_class("method", self.method)


@dataclass(frozen=True, kw_only=True, slots=True)
class DecodingConfig:
    """Section 6.1.

    ``length_penalty`` is alpha in ((5 + length) / 6) ** alpha; a hypothesis has at most
    ``max_extra_length`` word-pieces more than its source. ``beam_size`` 1 is greedy search.
    """

    beam_size: int = 4
    length_penalty: float = 0.6
    max_extra_length: int = 50

    def __post_init__(self) -> None:
        _check_fields(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    """Everything that determines the result of a run.

    ``named`` are the fields that :func:`override` was given, whatever their values: a scale leaves
    these unchanged. It is neither compared nor written.
    """

    model: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig
    training: TrainingConfig = field(default_factory=TrainingConfig)
    decoding: DecodingConfig = field(default_factory=DecodingConfig)
    named: frozenset[str] = field(default=frozenset(), compare=False, repr=False)

    @property
    def without_folders(self) -> Config:
        """A copy for comparison with another machine's: local text by its name alone, and without
        the choice of how steps are computed.
        """
        return override(self, corpus=self.data.corpus.placed(None), compile=None)


@functools.cache
def config_fields() -> dict[str, tuple[str, Any]]:
    """Section and type of each field of a configuration."""
    return {
        field: (section, kind)
        for section, owner in get_type_hints(Config).items()
        if section != "named"
        for field, kind in get_type_hints(owner).items()
    }


def override(config: Config, **changes: object) -> Config:
    """A copy of ``config`` with some fields changed, named without their sections.

    Another ``model`` or ``method`` does not keep the options of the one before.

    Raises:
        InputError: for an unknown name, or a value that its section refuses.
    """
    fields = config_fields()
    grouped: dict[str, dict[str, Any]] = {}
    for name, value in changes.items():
        if name not in fields:
            raise unknown_name("setting", name, fields)
        grouped.setdefault(fields[name][0], {})[name] = value
        if name in OPTIONS_OF and getattr(getattr(config, fields[name][0]), name) != value:
            grouped[fields[name][0]].setdefault(OPTIONS_OF[name], NO_OPTIONS)
    sections: dict[str, Any] = {
        section: dataclasses.replace(getattr(config, section), **values)
        for section, values in grouped.items()
    }
    return dataclasses.replace(config, **sections, named=config.named | changes.keys())


def text_settings(config: Config) -> tuple[DataConfig, int]:
    """The settings that the prepared text depends on; the batch size is not one of them."""
    data = config.without_folders.data
    return dataclasses.replace(data, tokens_per_batch=data.max_length), config.model.vocab_size


# The fields that name a class, and those with its options.
OPTIONS_OF = {"model": "options", "method": "method_options"}
# What may change between two sessions of one training; its data has a digest of its own.
_MAY_CHANGE = ("corpus", "compile", "average_checkpoints", "also_average")


def training_digest(config: Config) -> str:
    """A hash of the settings that must not change between a training's first step and its last.

    Decoding does not count, nor does the name of a class's file: its source has its own digest.
    Defaults are left out, so that a later version may add a setting.
    """
    settings: dict[str, object] = {}
    for section in (config.model, config.data, config.training):
        for each in dataclasses.fields(section):
            value = getattr(section, each.name)
            if each.name in _MAY_CHANGE or value == each.default:
                continue
            whole = isinstance(value, float) and value.is_integer()
            settings[each.name] = int(value) if whole else value  # 1.0 is 1
    for name in OPTIONS_OF.keys() & settings.keys():
        settings[name] = str(settings[name]).rpartition(":")[2]
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]


def differences(old: object, new: object, prefix: str = "") -> list[str]:
    """The leaves in which two JSON-like values differ, each as ``path: old -> new``."""
    if isinstance(old, dict) and isinstance(new, dict):
        old_items, new_items = cast(dict[str, object], old), cast(dict[str, object], new)
        return [
            line
            for key in dict.fromkeys([*old_items, *new_items])
            for line in differences(
                old_items.get(key), new_items.get(key), f"{prefix}.{key}".lstrip(".")
            )
        ]
    return [] if old == new else [f"{prefix}: {old!r} -> {new!r}"]


# Left out where they are not set, as files of earlier versions do not have them.
_WRITTEN_IF_SET: dict[str, object] = {
    **{"options": NO_OPTIONS, "method": None, "method_options": NO_OPTIONS},
    **{"references": (), "own_measures": (), "own_scores": {}},
}


def to_dict(config: Any) -> dict[str, Any]:
    """A dataclass as JSON-compatible dictionaries and lists."""

    def written(items: list[tuple[str, Any]]) -> dict[str, Any]:
        return {
            name: dict(value) if isinstance(value, Options) else value
            for name, value in items
            if name != "named" and not (name in _WRITTEN_IF_SET and value == _WRITTEN_IF_SET[name])
        }

    return json.loads(json.dumps(dataclasses.asdict(config, dict_factory=written)))


def from_dict(
    kind: type[T], values: dict[str, Any], where: str = "configuration", *, strict: bool = True
) -> T:
    """The dataclass that :func:`to_dict` wrote; unless ``strict``, unknown fields are skipped."""
    import dacite  # tests/gpu runs without it

    refused = dacite.DaciteError, InputError, AttributeError, TypeError, ValueError, KeyError
    hooks: dict[Any, Any] = {float: _number, Options: Options.of}
    taken = dacite.Config(type_hooks=hooks, cast=[tuple], strict=strict)
    try:
        return dacite.from_dict(kind, values, taken)
    except refused as error:
        raise InputError(f"{where} does not fit this version of the project: {error}") from error


def _number(value: object) -> object:
    """The value of a field that is a number, which files.to_json may have written as a string."""
    if isinstance(value, str) and value in ("Infinity", "-Infinity", "NaN"):
        return float(value)
    return value
