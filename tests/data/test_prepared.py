"""Prepared data that has changed is refused, and the file is named."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import numpy as np
import pytest

from transformer.config import Config
from transformer.data import prepared as prepared_module
from transformer.data.prepare import prepare as prepare_module
from transformer.data.prepare.prepare import prepare
from transformer.data.prepared import VOCABULARY_FILE, TextReport, damaged_files
from transformer.data.store import TokenStore
from transformer.errors import InputError


def flip_a_bit(path: Path, place: int = -1, *, keep_date: bool = False) -> None:
    date = path.stat().st_mtime_ns
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)
    if keep_date:
        os.utime(path, ns=(date, date))


@pytest.mark.parametrize(
    "name",
    [
        "vocabulary.model", "train/tokens.u16", "train/lengths.u32", "train/starts.u64",
        "train/by_length.u32", "train/buckets.i64", "valid/reference.txt", "report.json",
        "manifest.json",
    ],
)  # fmt: skip
def test_a_flipped_bit_or_a_missing_file_is_noticed(name: str, tiny_config: Config) -> None:
    directory = prepare(tiny_config).directory
    flip_a_bit(directory / name, -9, keep_date=True)
    with pytest.raises(InputError, match=f"{directory} is damaged: {name} changed"):
        prepare(tiny_config)
    (directory / name).unlink()
    with pytest.raises(InputError, match=f"{directory} is damaged: {name} changed"):
        prepare(tiny_config)


def test_a_large_file_is_read_whole_if_it_is_newer_than_the_manifest_or_on_request(
    tiny_config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepared_module, "_SMALL_BYTES", 1_000)
    directory = prepare(tiny_config).directory
    tokens = directory / "train" / "tokens.u16"
    assert tokens.stat().st_size > 1_000
    flip_a_bit(tokens, 10, keep_date=True)
    assert damaged_files(directory, whole=False) == []
    assert damaged_files(directory, whole=True) == ["train/tokens.u16"]
    os.utime(tokens)
    assert damaged_files(directory, whole=False) == ["train/tokens.u16"]


def test_a_changed_text_is_refused_before_it_is_prepared(
    tiny_config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted = prepare(tiny_config).manifest
    changed = Path(tiny_config.data.corpus.train[0].target.location)
    changed.write_text(changed.read_text().replace("eins", "EINS", 1))
    monkeypatch.setattr(prepare_module, "_prepare", lambda *_: pytest.fail("prepared it"))
    with pytest.raises(InputError, match=f"not what this run began with: {changed} changed;"):
        prepare(tiny_config, expected=noted)


def test_other_prepared_files_of_the_same_text_are_refused(tiny_config: Config) -> None:
    manifest = prepare(tiny_config).manifest
    other = manifest.files | {VOCABULARY_FILE: prepared_module.Checksum(bytes=1, sha256="0" * 64)}
    noted = dataclasses.replace(manifest, files=other, digest="of another")
    with pytest.raises(InputError, match=r"began with: vocabulary\.model changed"):
        prepare(tiny_config, expected=noted)


def test_a_text_that_changes_while_it_is_read_is_refused(
    tiny_config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed, train = Path(tiny_config.data.corpus.train[0].source.location), prepare_module._train

    def change_then_train(*arguments: object) -> list[TextReport]:
        changed.write_text(changed.read_text().replace("one", "two"))
        return train(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(prepare_module, "_train", change_then_train)
    with pytest.raises(InputError, match=f"{changed} changed while it was read"):
        prepare(tiny_config)


def test_a_token_outside_the_vocabulary_is_reported(tiny_config: Config) -> None:
    corpus = prepare(tiny_config)
    tokens = np.memmap(corpus.directory / "train" / "tokens.u16", np.uint16, "r+")
    tokens[0] = 61
    tokens.flush()
    with pytest.raises(InputError, match="holds token 61, but the vocabulary ends at 60"):
        corpus.store("train").padded(np.array([0]), 0)
    assert TokenStore(corpus.directory / "train").padded(np.array([0]), 0)[0, 0] == 61
