"""Samples for many tests: a corpus, a configuration, models and batches."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from torch import Tensor

from experiments.records.experiment import Experiment
from experiments.records.ownership import claim
from transformer.config import (
    BOS_ID,
    EOS_ID,
    PAD_ID,
    Config,
    DataConfig,
    ModelConfig,
    TrainingConfig,
    override,
)
from transformer.corpus import Corpus
from transformer.model.encoder_decoder import Transformer

ENGLISH = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
GERMAN = ["null", "eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun"]

# Contents that a broken disk may leave in place of a JSON object.
DAMAGED_JSON = {
    "empty": b"",
    "cut": b"{",
    "bytes": b"\xff\xfe{}",
    "list": b"[1]",
    "null": b"null",
    "nested list": b"[" * 100_000,
    "long number": b'{"a": 1' + b"0" * 400 + b"}",
    "half a character": b'{"a": "\\uD800"}',
}

# No two sizes are alike, so that swapped axes fail.
TINY_MODEL = ModelConfig(
    vocab_size=61,
    num_layers=2,
    d_model=26,
    d_ff=17,
    num_heads=3,
    d_k=5,
    d_v=7,
    dropout=0.0,
    max_positions=19,
)


def all_but_first_slow(values: Iterable[Any]) -> list[Any]:
    """Parameters of a test of which the fast tests take the first alone."""
    first, *others = values
    return [first, *(pytest.param(value, marks=pytest.mark.slow) for value in others)]


def number_pairs(count: int, seed: int, longest: int = 7) -> list[tuple[str, str]]:
    """Digits as English words, and as German words in reverse order."""
    random = Random(seed)
    digits = [random.choices(range(10), k=random.randint(1, longest)) for _ in range(count)]
    return [
        (" ".join(ENGLISH[d] for d in row), " ".join(GERMAN[d] for d in reversed(row)))
        for row in digits
    ]


def write_corpus(
    folder: Path, *, train: int = 211, valid: int = 13, test: int = 11, longest: int = 7
) -> Path:
    """Write ``train.en``, ``train.de`` and so on, the same at every call."""
    folder.mkdir(parents=True)
    for seed, (split, count) in enumerate({"train": train, "valid": valid, "test": test}.items()):
        write_pairs(folder, split, number_pairs(count, seed, longest))
    return folder


def write_pairs(folder: Path, split: str, pairs: list[tuple[str, str]]) -> None:
    """Write both sides of a split, one line per pair."""
    for language, lines in zip(("en", "de"), zip(*pairs, strict=True), strict=True):
        text = "".join(f"{line}\n" for line in lines)
        (folder / f"{split}.{language}").write_text(text, encoding="utf-8", newline="\n")


def tiny(corpus: Corpus, **changes: object) -> Config:
    """A configuration for a corpus of numbers, in fp32 so that every machine agrees."""
    config = Config(
        model=TINY_MODEL,
        data=DataConfig(corpus=corpus, tokens_per_batch=101, max_length=41),
        training=TrainingConfig(
            seed=3, max_steps=7, warmup_steps=13, learning_rate_factor=0.2, precision="fp32"
        ),
    )
    return override(config, **changes)


def random_sentences(lengths: list[int], vocab_size: int = TINY_MODEL.vocab_size) -> Tensor:
    """Sources of these lengths, ends included, right-padded: ``(batch, src)``."""
    rows = [
        torch.cat([torch.randint(4, vocab_size, (length - 1,)), torch.tensor([EOS_ID])])
        for length in lengths
    ]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD_ID)


def random_targets(lengths: list[int], vocab_size: int = TINY_MODEL.vocab_size) -> Tensor:
    """Decoder inputs of these lengths, BOS first: ``(batch, tgt)``."""
    rows = [
        torch.cat([torch.tensor([BOS_ID]), torch.randint(4, vocab_size, (length - 1,))])
        for length in lengths
    ]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD_ID)


def tiny_model(config: ModelConfig = TINY_MODEL) -> Transformer:
    """A float64 model whose normalisation and biases are not at their initial values."""
    model = Transformer(config).double()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter), alpha=0.3)
    return model


def write_wsj(folder: Path) -> Path:
    """A Penn Treebank of two files of two trees in each section from 00 to 24."""
    for n in range(25):
        (folder / f"{n:02d}").mkdir(parents=True)
        for m in (1, 0):
            text = f"( (S (NP-SBJ (NN w{n})) (VP (VB f{m}))))\n\n( (NP (NN a)\n (NN b) (. .)))\n"
            (folder / f"{n:02d}" / f"wsj_{n:02d}{m:02d}.mrg").write_text(text)
        (folder / f"{n:02d}" / "readme.txt").write_text("no trees")
    return folder


def archive(
    files: Mapping[str, bytes],
    mode: str = "w:gz",
    kind: bytes = tarfile.REGTYPE,
    pax: Mapping[str, str] | None = None,
) -> bytes:
    """A tar of these files, or of links to /etc/passwd, pipes and so on in their place."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode=mode) as tar:  # pyright: ignore[reportCallIssue,reportArgumentType]
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.type, info.size, info.pax_headers = kind, len(content), dict(pax or {})
            info.linkname = "/etc/passwd" if kind == tarfile.SYMTYPE else ""
            tar.addfile(info, io.BytesIO(content))
    return packed.getvalue()


def flip_a_bit(path: Path, place: int = -1, *, keep_date: bool = False) -> None:
    """Damage a file without changing its size."""
    date = path.stat().st_mtime_ns
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)
    if keep_date:
        os.utime(path, ns=(date, date))


def new_run(directory: Path, experiment: Experiment) -> None:
    """Write the experiment into a directory, which is made if it is missing."""
    directory.mkdir(parents=True, exist_ok=True)
    claim(directory, experiment)
