"""``--set FIELD=VALUE``: an experiment with some fields of its configuration changed."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from types import NoneType, UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from experiments.run.experiment import Experiment
from transformer.config import Config, override
from transformer.errors import InputError, unknown_name

# Fields that have another place on the command line.
_ELSEWHERE = {
    "corpus": "NAME, such as files:FOLDER",
    "vocab_size": "--vocab-size",
    "seed": "--seed",
    "compile": "--compile",
    "checkpoint_every_minutes": "--checkpoint-minutes",
}
# W&B allows names of 128 letters, file systems 255.
_MOST_LETTERS = 100


def with_settings(experiment: Experiment, settings: Sequence[str]) -> Experiment:
    """The experiment with each ``FIELD=VALUE`` or ``SECTION.FIELD=VALUE`` applied.

    The settings become part of its name.

    Raises:
        InputError: for an unknown field, or a value that does not fit it.
    """
    if not settings:
        return experiment
    fields = _fields()
    values: dict[str, object] = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals:
            raise InputError(f"--set {setting}: write FIELD=VALUE, such as dropout=0.2")
        section, _, field = name.rpartition(".")
        if field not in fields:
            raise unknown_name("setting", field, fields)
        right_section, kind = fields[field]
        if section not in ("", right_section):
            raise InputError(f"unknown setting {name!r}: did you mean '{right_section}.{field}'?")
        if field in _ELSEWHERE:
            raise InputError(f"--set takes no {field}: give it as {_ELSEWHERE[field]}")
        if field in values:
            raise InputError(f"--set has {field} twice")
        values[field] = _parse(field, text, kind)
    words = "-".join(f"{field}={values[field]}" for field in fields if field in values)
    if len(words) > _MOST_LETTERS:
        raise InputError(
            f"--set makes the run's name longer by over {_MOST_LETTERS} letters: give fewer, or "
            "declare an EXPERIMENT = Experiment(…) of your own in a FILE.py"
        )
    return dataclasses.replace(
        experiment,
        name=f"{experiment.name}-{words}",
        config=override(experiment.config, **values),
    )


def _fields() -> dict[str, tuple[str, Any]]:
    """Section and type of each field of a configuration."""
    return {
        field: (section, kind)
        for section, owner in get_type_hints(Config).items()
        for field, kind in get_type_hints(owner).items()
    }


def _parse(field: str, text: str, kind: Any) -> object:
    kinds = get_args(kind) if isinstance(kind, UnionType) else (kind,)
    optional = NoneType in kinds
    if optional and text.lower() == "none":
        return None
    value, expected = _value(text, kinds[0])
    if value is None:
        raise InputError(f"{field} is {text!r}, but takes {expected}{' or none' * optional}")
    return value


def _value(text: str, kind: Any) -> tuple[object, str]:
    """``text`` as that type, or None; and a description of the values that the type takes."""
    if get_origin(kind) is Literal:
        choices: tuple[str, ...] = get_args(kind)
        return text if text in choices else None, f"one of {', '.join(choices)}"
    if kind is bool:
        return {"true": True, "false": False}.get(text.lower()), "true or false"
    expected = "a whole number" if kind is int else "a number"
    try:
        value = kind(text)
        return value if math.isfinite(value) else None, expected
    except (ValueError, OverflowError):
        return None, expected
