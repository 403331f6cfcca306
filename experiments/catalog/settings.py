"""Apply ``--set FIELD=VALUE`` to an experiment."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from experiments.records.experiment import Experiment
from transformer.config import OPTIONS_OF, Config, config_fields, override
from transformer.errors import InputError, unknown_name
from transformer.fields import fits, takes
from transformer.parameters import declared_options, resolve
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
    """The experiment with each ``FIELD=VALUE``, ``SECTION.FIELD=VALUE`` or ``Class.option=VALUE``
    applied.

    The settings become part of its name.
    """
    if not settings:
        return experiment
    fields = config_fields()
    values: dict[str, object] = {}
    of_classes: dict[str, str] = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals:
            raise InputError(f"--set {setting}: write FIELD=VALUE, such as dropout=0.2")
        section, _, field = name.rpartition(".")
        if section not in ("", *(section for section, _ in fields.values())):
            of_classes[name] = text
            continue
        if field not in fields:
            raise unknown_name("setting", field, fields)
        if section not in ("", right := fields[field][0]):
            raise InputError(f"unknown setting {name!r}: did you mean '{right}.{field}'?")
        if field in _ELSEWHERE:
            raise InputError(f"--set takes no {field}: give it as {_ELSEWHERE[field]}")
        kind = fields[field][1]
        values[field] = variant_name(text) if field in OPTIONS_OF else _parse(field, kind, text)
    config = override(experiment.config, **values)
    config, options = _with_options(config, values, of_classes)
    shown = {x: class_name(str(value)) if x in OPTIONS_OF else value for x, value in values.items()}
    shown = {field: shown[field] for field in fields if field in values} | options
    words = "-".join(f"{field}={value}" for field, value in shown.items())
    if len(words) > _MOST_LETTERS:
        raise InputError(
            f"--set makes the run's name longer by over {_MOST_LETTERS} letters: give fewer, or "
            "declare an EXPERIMENT = Experiment(…) of your own in a FILE.py"
        )
    return dataclasses.replace(
        experiment,
        name=f"{experiment.name}-{words}",
        config=config,
    )


def _with_options(
    config: Config, values: Mapping[str, object], texts: Mapping[str, str]
) -> tuple[Config, dict[str, object]]:
    """Set the options of the chosen classes: each ``Class.option`` of ``texts``, else its default.

    Returns:
        The configuration, and the given options by name.
    """
    left, shown = dict(texts), dict[str, object]()
    for of, field in OPTIONS_OF.items():
        section, _ = config_fields()[of]
        name: str | None = getattr(getattr(config, section), of)
        prefix = f"{class_name(name or '')}."
        own: dict[str, str] = {}
        for setting in [*left]:
            if setting.startswith(prefix):
                own[setting.removeprefix(prefix)] = left.pop(setting)
        if name is None or not (own or of in values):
            continue
        known = declared_options(name)
        given: dict[str, object] = {}
        for option, text in own.items():  # resolve() refuses unknown ones
            given[option] = _parse(option, known[option].kind, text) if option in known else text
        before = dict(getattr(getattr(config, section), field))
        config = override(config, **{field: resolve(name, {**before, **given})})
        shown |= {f"{prefix}{x}": value for x, value in given.items()}
    for name in left:
        field = name.rpartition(".")[2]
        if field in config_fields():
            right = f"{config_fields()[field][0]}.{field}"
            raise InputError(f"unknown setting {name!r}: did you mean {right!r}?")
        raise InputError(f"--set {name}: the experiment has no model and no method of this name")
    return config, shown


def _parse(field: str, kind: object, text: str) -> object:
    value: Any = _WORDS.get(text.lower(), text)
    for number in (int, float):
        if fits(number(1), kind):
            with suppress(ValueError):
                value = number(text)
    if not fits(value, kind) or (isinstance(value, float) and not math.isfinite(value)):
        raise InputError(f"{field} is {text!r}, but takes {takes(kind)}")
    return value
