"""The configuration: the paper's defaults, invalid values, and JSON."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

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
from transformer.errors import InputError, unknown_name

ROOT = Path(__file__).parents[1]
BASE = Config(data=DataConfig(corpus=CLDR_EN_DE))


def test_the_defaults_are_the_papers_base_model() -> None:
    model, training, decoding = BASE.model, BASE.training, BASE.decoding
    assert (model.num_layers, model.d_model, model.d_ff) == (6, 512, 2048)
    assert (model.num_heads, model.d_k, model.d_v, model.dropout) == (8, 64, 64, 0.1)
    assert (model.positions, model.vocab_size) == ("sinusoidal", 37_000)
    assert (training.max_steps, training.warmup_steps) == (100_000, 4_000)
    assert (training.adam_beta1, training.adam_beta2, training.adam_epsilon) == (0.9, 0.98, 1e-9)
    assert (training.label_smoothing, training.learning_rate_factor) == (0.1, 1.0)
    assert training.clip_norm is None
    assert BASE.data.tokens_per_batch == 25_000
    assert (decoding.beam_size, decoding.length_penalty, decoding.max_extra_length) == (4, 0.6, 50)


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("num_heads", 0, "at least 1"),
        ("d_model", 511, "even"),
        ("vocab_size", 7, "at least 8"),
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


def test_an_unknown_name_suggests_one_or_lists_all() -> None:
    assert str(unknown_name("row", "bse", ["base", "big"])) == (
        "unknown row 'bse': did you mean 'base'?"
    )
    assert str(unknown_name("row", "xyz", ["big", "base"])) == "unknown row 'xyz': known: base, big"


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
    broken = to_dict(BASE) | {section: values}
    with pytest.raises(InputError, match=r"^run/config\.json does not fit this version"):
        from_dict(Config, broken, "run/config.json")


def test_differences_are_named_leaf_by_leaf() -> None:
    changed = override(BASE, d_ff=11, clip_norm=0.5)
    assert differences(to_dict(BASE), to_dict(changed)) == [
        "model.d_ff: 2048 -> 11",
        "training.clip_norm: None -> 0.5",
    ]
    assert differences({"a": {"b": 1}}, {"a": {}, "c": 2}) == ["a.b: 1 -> None", "c: None -> 2"]
    assert differences(to_dict(BASE), to_dict(BASE)) == []
