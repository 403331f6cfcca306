"""Settings that rows, scales and searches may change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypedDict, get_type_hints

from transformer.config import (
    OPTIONS_OF,
    Config,
    Positions,
    Precision,
    Schedule,
    config_fields,
    override,
)
from transformer.errors import InputError, unknown_name
from transformer.fields import Options, Value, fits, takes
from transformer.parameters import resolve
from transformer.variant import class_name, variant_name

if TYPE_CHECKING:
    from torch import nn


class Settings(TypedDict, total=False):
    """The settings that a scale may set for all rows, and a row for itself."""

    vocab_size: int
    num_heads: int
    positions: Positions
    max_positions: int

    tokens_per_batch: int
    max_length: int
    max_length_ratio: float | None
    drop_duplicates: bool

    warmup_steps: int
    schedule: Schedule
    learning_rate_factor: float
    adam_beta1: float
    adam_beta2: float
    adam_epsilon: float
    label_smoothing: float
    clip_norm: float | None
    precision: Precision
    threads: int | None
    average_checkpoints: int
    also_average: int | None
    checkpoint_every_steps: int
    validate_every_steps: int
    log_every_steps: int

    beam_size: int
    length_penalty: float
    max_extra_length: int


class Changes(Settings, total=False):
    """The settings that a row may change, with those that a scale maps and the target language."""

    num_layers: int
    d_model: int
    d_ff: int
    d_k: int
    d_v: int
    dropout: float
    max_steps: int
    target_language: str


CHANGES: dict[str, object] = {**get_type_hints(Changes), **dict.fromkeys(OPTIONS_OF, str | None)}
SCALE_SETTINGS: dict[str, object] = get_type_hints(Settings)
# Table 3's columns, in its order, with its names.
COLUMNS = {
    "num_layers": "N",
    "d_model": "d_model",
    "d_ff": "d_ff",
    "num_heads": "h",
    "d_k": "d_k",
    "d_v": "d_v",
    "dropout": "P_drop",
    "label_smoothing": "ε_ls",
    "positions": "positions",
    "max_steps": "steps",
    "vocab_size": "vocabulary",
    "target_language": "into",
}


def check_change(of: str, known: Mapping[str, object], name: str, value: object) -> None:
    """Check the name and the type of a change in a row, a scale or a search (``of``)."""
    if name not in known and name in config_fields():
        page = "search" if of == "search" else "own-tables"
        raise InputError(f"a {of} cannot change {name}: docs/{page}.md lists what it can change")
    if name not in known:
        raise unknown_name("setting", name, known)
    if not fits(value, known[name]):
        raise InputError(f"{name} is {value!r}, but must be {takes(known[name])}")


def columns(config: Config) -> dict[str, Value]:
    """The values in ``config`` of the settings that a row may change; options as ``Class.name``."""
    found = _fields(config)
    found["target_language"] = config.data.corpus.target_language
    options = {
        option_name(str(found[of]), name): value
        for of, field in OPTIONS_OF.items()
        for name, value in found[field]
    }
    return {name: found[name] for name in CHANGES} | options


def class_changes(
    of: str, kind: type[nn.Module] | str | None, options: Mapping[str, Value] | None = None
) -> dict[str, Value]:
    """The changes that choose a class as ``model`` or ``method``, with all of its options."""
    if kind is None:
        if options:
            raise InputError(f"{OPTIONS_OF[of]} belong to a {of}: give the row a {of}= too")
        return {}
    name = variant_name(kind)
    found = resolve(name, options or {})
    return {of: name, **{option_name(name, option): value for option, value in found}}


def option_name(of: str, name: str) -> str:
    """The name that an option of the class ``of`` has among the settings of a row."""
    return f"{class_name(of)}.{name}"


def is_option(name: str) -> bool:
    """Whether a setting is an option of a class."""
    return "." in name


def with_changes(config: Config, changes: Mapping[str, object]) -> Config:
    """:func:`override` that takes options too; options of classes not in use have no effect.

    Raises:
        InputError: for an unknown setting, or a value that the configuration refuses
    """
    settings = {name: value for name, value in changes.items() if not is_option(name)}
    config = override(config, **settings)
    found = _fields(config)
    for of, field in OPTIONS_OF.items():
        if found[of] is None:
            continue
        prefix, options = option_name(found[of], ""), dict(found[field])
        given: dict[str, Any] = {
            name.removeprefix(prefix): value
            for name, value in changes.items()
            if name.startswith(prefix)
        }
        if given:
            config = override(config, **{field: Options.of({**options, **given})})
    return config


def _fields(config: Config) -> dict[str, Any]:
    return {
        name: getattr(getattr(config, section), name)
        for name, (section, _) in config_fields().items()
    }
