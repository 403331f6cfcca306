"""Loading safetensors exports: bit for bit, or a one-line error."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

import pytest
import torch

from tests.samples import TINY_MODEL, number_pairs
from transformer import DecodingConfig, InputError, Transformer, load_pretrained, translate
from transformer.config import ModelConfig, to_dict
from transformer.data.vocabulary import train_vocabulary
from transformer.pretrained import load_weights, save_weights


def exported(folder: Path, config: ModelConfig = TINY_MODEL) -> Transformer:
    """Write an export into ``folder`` and return its model."""
    model = Transformer(config).eval()
    lines = [line for pair in number_pairs(211, seed=0) for line in pair]
    train_vocabulary(lines, config.vocab_size, folder / "vocabulary.model")
    save_weights(model.state_dict(), folder)
    values = {"name": "numbers", "config": {"model": to_dict(config)}}
    (folder / "config.json").write_text(json.dumps(values))
    return model


@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
def test_an_exported_model_is_loaded_bit_for_bit_and_translates(
    positions: str, tmp_path: Path
) -> None:
    learned = dataclasses.replace(TINY_MODEL, positions="learned")
    model = exported(tmp_path, learned if positions == "learned" else TINY_MODEL)
    found, vocabulary = load_pretrained(tmp_path)
    assert found.config == model.config and not found.training
    expected = model.state_dict()
    assert found.state_dict().keys() == expected.keys()
    assert all(torch.equal(w, expected[name]) for name, w in found.state_dict().items())
    lines, decoding = ["one two", "", "three"], DecodingConfig(max_extra_length=5)
    assert translate(found, vocabulary, lines, decoding) == translate(
        model, vocabulary, lines, decoding
    )


def test_its_files_may_be_links(tmp_path: Path) -> None:
    (tmp_path / "blobs").mkdir()
    (tmp_path / "snapshot").mkdir()
    exported(tmp_path / "blobs")
    for file in (tmp_path / "blobs").iterdir():
        (tmp_path / "snapshot" / file.name).symlink_to(file)
    assert load_pretrained(tmp_path / "snapshot")[0].config == TINY_MODEL


def test_layers_that_share_their_weights_are_written(tmp_path: Path) -> None:
    model = Transformer(TINY_MODEL)
    model.encoder[1] = model.encoder[0]  # pyright: ignore[reportIndexIssue]
    save_weights(model.state_dict(), tmp_path)
    expected, found = model.state_dict(), load_weights(TINY_MODEL, tmp_path).state_dict()
    assert all(torch.equal(found[name], weight) for name, weight in expected.items())


def test_what_cannot_be_loaded_is_reported_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match=r"is not an export: .*config\.json"):
        load_pretrained(tmp_path)
    (tmp_path / "config.json").write_text('{"add_source_eos": true}')
    with pytest.raises(InputError, match=r"is not an export: .*config\.json"):
        load_pretrained(tmp_path)
    exported(tmp_path)
    other = dataclasses.replace(TINY_MODEL, d_ff=19)
    path = tmp_path / "model.safetensors"
    for config, content in ((other, path.read_bytes()), (TINY_MODEL, b"half of it"), (other, None)):
        path.unlink() if content is None else path.write_bytes(content)
        with pytest.raises(InputError, match=r"model\.safetensors cannot be used: ") as raised:
            load_weights(config, tmp_path)
        assert "\n" not in str(raised.value)
    exported(tmp_path)
    train_vocabulary(["one two three four five"], 20, tmp_path / "vocabulary.model")
    with pytest.raises(InputError, match="holds 20 word-pieces for a model with 61: export it ag"):
        load_pretrained(tmp_path)
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(InputError, match=r"safetensors is not installed: pip install '\.\[export"):
        load_weights(TINY_MODEL, tmp_path)
