"""Small archives with the names and members of WMT14's, and a user's file that trains on them."""

from __future__ import annotations

import functools
import gzip
import hashlib
import io
import lzma
import os
import tarfile
from pathlib import Path

from transformer.corpus import Corpus
from transformer.data.corpora import cldr
from transformer.data.corpora.declared import WMT14_EN_DE, WMT14_EN_FR

# Of each training text.
LINES = 151
VALID_LINES, TEST_LINES = 11, 7
_NEWSTEST = {"de": "wmt-news-ende/newstest2012", "fr": "wmt-news-enfr/newstest2012"}

# What a user would write who has other archives than the declared ones.
DECLARATION = """
from dataclasses import replace

from experiments.records.experiment import Experiment
from transformer import (
    Config, DataConfig, DecodingConfig, ModelConfig, ParallelText, TrainingConfig, {name},
)

FOUND = {found}


def as_found(file):
    size, sha256 = FOUND[file.location]
    return replace(file, bytes=size, sha256=sha256)


CORPUS = replace(
    {name},
    train=tuple(
        ParallelText(source=as_found(text.source), target=as_found(text.target))
        for text in {name}.train
    ),
)
EXPERIMENT = Experiment(
    name="rehearsal",
    description="a small model on the archives as found",
    config=Config(
        model=ModelConfig(
            vocab_size=307, num_layers=1, d_model=26, d_ff=17, num_heads=3, d_k=5, d_v=7
        ),
        data=DataConfig(corpus=CORPUS, tokens_per_batch=1_009),
        training=TrainingConfig(max_steps=3, warmup_steps=2),
        decoding=DecodingConfig(beam_size=2, max_extra_length=5),
    ),
)
"""


@functools.cache
def pairs(language: str) -> list[tuple[str, str]]:
    """Real sentences; without DATA_FILES the built-in phrases, whatever the language."""
    if folder := os.environ.get("DATA_FILES"):
        stem = Path(folder) / _NEWSTEST[language]
        sides = (
            lzma.decompress(stem.with_name(f"{stem.name}.{side}.xz").read_bytes()).decode()
            for side in ("en", language)
        )
        return list(zip(*(side.split("\n")[:-1] for side in sides), strict=True))
    return cldr.pairs(cldr.SEED, 5 * LINES + VALID_LINES + TEST_LINES)


def archives(corpus: Corpus) -> dict[str, bytes]:
    """What the mirror of ``corpus`` holds, by the path of its address."""
    members: dict[str, list[tuple[str, bytes]]] = {}
    for number, text in enumerate(corpus.train):
        chosen = pairs(corpus.target_language)[number * LINES : (number + 1) * LINES]
        for file, lines in zip((text.source, text.target), zip(*chosen, strict=True), strict=True):
            assert file.member is not None
            content = "".join(f"{line}\n" for line in lines).encode()
            packed = gzip.compress(content) if file.member.endswith(".gz") else content
            entries = members.setdefault(file.location, [("README", b"to be left alone\n")])
            entries.append((file.member, packed))
    return {path_of(location): _tar(location, held) for location, held in members.items()}


def _tar(location: str, members: list[tuple[str, bytes]]) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz" if location.endswith("gz") else "w") as tar:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return file.getvalue()


def path_of(location: str) -> str:
    """The path at a mirror's server."""
    return f"/{location.partition('://')[2]}"


def declare(path: Path, corpus: Corpus, served: dict[str, bytes]) -> Path:
    """Write a user's file with the declared corpus as the mirror has it."""
    found = {
        file.location: (len(content), hashlib.sha256(content).hexdigest())
        for file in (text.source for text in corpus.train)
        for content in [served[path_of(file.location)]]
    }
    name = {WMT14_EN_DE.name: "WMT14_EN_DE", WMT14_EN_FR.name: "WMT14_EN_FR"}[corpus.name]
    path.write_text(DECLARATION.format(name=name, found=found))
    return path


def fill_sacrebleu(folder: Path, language: str) -> None:
    """The paper's sets as sacreBLEU keeps them, with an entity in each first line."""
    rest = pairs(language)[-VALID_LINES - TEST_LINES :]
    for name, held in (("wmt13", rest[:VALID_LINES]), ("wmt14/full", rest[VALID_LINES:])):
        (folder / name).mkdir(parents=True)
        stem = f"{name.replace('/', '_')}.en-{language}"
        for field, lines in zip(("src", "ref"), zip(*held, strict=True), strict=True):
            text = "".join(f"{line}\n" for line in lines)
            (folder / name / f"{stem}.{field}").write_text(f"R&amp;D: {text}", encoding="utf-8")
