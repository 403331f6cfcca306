"""The configuration: invalid values, overrides, and JSON; test_table3.py pins the defaults."""

from __future__ import annotations

import dataclasses
import json
from typing import Any, cast

import pytest

from transformer.config import (
    Config,
    DataConfig,
    DecodingConfig,
    ModelConfig,
    TrainingConfig,
    differences,
    from_dict,
    override,
    to_dict,
)
from transformer.data.corpora.declared import CLDR_EN_DE, MULTI30K_EN_DE, WMT14_EN_DE
from transformer.errors import InputError

BASE = Config(data=DataConfig(corpus=CLDR_EN_DE))
NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("num_heads", 0, "at least 1"),
        ("d_model", 511, "even"),
        ("vocab_size", 7, "at least 8"),
        ("vocab_size", 2**31, r"below 2\*\*31"),
        ("seed", 2**63, r"below 2\*\*63"),
        ("dropout", 1.0, "at least 0 and below 1"),
        ("dropout", NAN, "at least 0"),
        ("positions", "rotary", "one of sinusoidal, learned"),
        ("max_length", 1, "at least 2"),
        ("tokens_per_batch", 255, r"at least max_length \(256\)"),
        ("also_average", 1, "at least 2"),
        ("checkpoint_every_minutes", 0, "above 0"),
        ("seed", -1, "at least 0"),
        ("learning_rate_factor", INF, "at least 0"),
        ("adam_epsilon", 0.0, "above 0"),
        ("clip_norm", 0.0, "above 0"),
        ("precision", "fp16", "one of auto, bf16, fp32"),
        ("length_penalty", -0.1, "at least 0"),
        ("max_steps", 1e5, "a whole number"),
        ("threads", True, "a whole number or none"),
        ("d_model", "512", "a whole number"),
        ("schedule", None, "one of inverse_sqrt, linear, cosine"),
        ("compile", 1, "true or false"),
        ("corpus", "cldr", "a Corpus"),
    ],
)
def test_an_invalid_value_is_refused_by_name(name: str, value: object, expected: str) -> None:
    with pytest.raises(InputError, match=f"^{name} is {value!r}, but must be {expected}"):
        override(BASE, **{name: value})


def test_an_override_finds_the_section_and_leaves_the_rest() -> None:
    changed = override(BASE, d_ff=11, beam_size=5, seed=7, corpus=MULTI30K_EN_DE)
    assert changed == Config(
        model=ModelConfig(d_ff=11),
        data=DataConfig(corpus=MULTI30K_EN_DE),
        training=TrainingConfig(seed=7),
        decoding=DecodingConfig(beam_size=5),
    )
    assert override(BASE) == BASE
    sections = (ModelConfig, DataConfig, TrainingConfig, DecodingConfig)
    names = [field.name for section in sections for field in dataclasses.fields(section)]
    assert len(set(names)) == len(names), "no two sections share a name"


@pytest.mark.parametrize(
    "config",
    [
        BASE,
        Config(data=DataConfig(corpus=WMT14_EN_DE)),
        # integers for floats, as users write them
        override(BASE, dropout=0, clip_norm=1, learning_rate_factor=2, positions="learned"),
    ],
    ids=["base", "several texts", "whole numbers"],
)
def test_a_configuration_survives_json(config: Config) -> None:
    assert from_dict(Config, json.loads(json.dumps(to_dict(config)))) == config


@pytest.mark.parametrize(
    ("section", "values"),
    [("data", {}), ("model", {"heads": 7}), ("model", {"d_ff": "many"})],
    ids=["missing", "unknown", "type"],
)
def test_json_that_does_not_fit_names_its_file(section: str, values: dict[str, Any]) -> None:
    for broken in (to_dict(BASE) | {section: values}, [values]):
        with pytest.raises(InputError, match=r"^run/config\.json does not fit this version"):
            from_dict(Config, cast(Any, broken), "run/config.json")


def test_differences_are_named_leaf_by_leaf() -> None:
    assert differences({"a": {"b": 1}}, {"a": {}, "c": 2}) == ["a.b: 1 -> None", "c: None -> 2"]
