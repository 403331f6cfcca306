"""Apply ``--set FIELD=VALUE`` to an experiment."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from experiments.records.experiment import Experiment
from transformer.config import OPTIONS_OF, config_fields, override
from transformer.errors import InputError, unknown_name
from transformer.fields import fits, takes
from transformer.variant import class_name, variant_name

# Fields that have another place on the command line.
_ELSEWHERE = {
    "corpus": "NAME, such as files:FOLDER",
    "vocab_size": "--vocab-size",
    "seed": "--seed",
}
_WORDS = {"none": None, "true": True, "false": False}
# W&B allows names of 128 letters, file systems 255.
_MOST_LETTERS = 100


def with_settings(experiment: Experiment, settings: Sequence[str]) -> Experiment:
    """The experiment with each ``FIELD=VALUE`` or ``SECTION.FIELD=VALUE`` applied.

    The settings become part of its name.
    """
    if not settings:
        return experiment
    fields = config_fields()
    values: dict[str, object] = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals:
            raise InputError(f"--set {setting}: write FIELD=VALUE, such as dropout=0.2")
        section, _, field = name.rpartition(".")
        if field not in fields:
            raise unknown_name("setting", field, fields)
        if section not in ("", right := fields[field][0]):
            raise InputError(f"unknown setting {name!r}: did you mean '{right}.{field}'?")
        if field in _ELSEWHERE:
            raise InputError(f"--set takes no {field}: give it as {_ELSEWHERE[field]}")
        values[field] = variant_name(text) if field in OPTIONS_OF else _parse(field, text)
    shown = {x: class_name(str(value)) if x in OPTIONS_OF else value for x, value in values.items()}
    words = "-".join(f"{field}={shown[field]}" for field in fields if field in values)
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


def _parse(field: str, text: str) -> object:
    _, kind = config_fields()[field]
    value: Any = _WORDS.get(text.lower(), text)
    for number in (int, float):
        if fits(number(1), kind):
            with suppress(ValueError):
                value = number(text)
    if not fits(value, kind) or (isinstance(value, float) and not math.isfinite(value)):
        raise InputError(f"{field} is {text!r}, but takes {takes(kind)}")
    return value
