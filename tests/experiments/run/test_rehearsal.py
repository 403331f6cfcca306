"""A small WMT14, from its archives to a score, with a server that fails in many ways."""

from __future__ import annotations

import gzip
import hashlib
import signal
from pathlib import Path

import pytest

from experiments.catalog.find import find_experiment
from tests.data.scripted_server import ScriptedServer, cut, ignoring_ranges, other, stalled, status
from tests.experiments.conftest import Command, Start
from tests.samples import archive
from transformer.data.corpora.declared import CLDR_EN_DE, WMT14_EN_DE
from transformer.data.fetch import download
from transformer.data.fetch.cache import cache_directory
from transformer.data.fetch.texts import fetch
from transformer.data.prepare.prepare import prepare
from transformer.data.text import read_aligned
from transformer.files import part_of

EUROPARL = "/www.statmt.org/wmt13/training-parallel-europarl-v7.tgz"
COMMON_CRAWL = "/www.statmt.org/wmt13/training-parallel-commoncrawl.tgz"
NEWS_COMMENTARY = "/www.statmt.org/wmt14/training-parallel-nc-v9.tgz"
LINES, VALID_LINES, TEST_LINES = 151, 11, 7  # of each training text

# A user's declaration for archives that differ from the declared ones.
DECLARATION = """
from dataclasses import replace

from experiments.records.experiment import Experiment
from transformer import Config, DataConfig, ParallelText, WMT14_EN_DE, override

FOUND = {found}


def as_found(file):
    size, sha256 = FOUND[file.location]
    return replace(file, bytes=size, sha256=sha256)


CORPUS = replace(
    WMT14_EN_DE,
    train=tuple(
        ParallelText(source=as_found(text.source), target=as_found(text.target))
        for text in WMT14_EN_DE.train
    ),
)
EXPERIMENT = Experiment(
    name="rehearsal",
    description="a small model on the archives as found",
    config=override(
        Config(data=DataConfig(corpus=CORPUS, tokens_per_batch=1_009)),
        vocab_size=307, num_layers=1, d_model=26, d_ff=17, num_heads=3, d_k=5, d_v=7,
        max_steps=3, warmup_steps=2, beam_size=2, max_extra_length=5,
    ),
)
"""


def phrases() -> list[tuple[str, str]]:
    """Some pairs of the built-in corpus."""
    (text,) = CLDR_EN_DE.train
    pairs = zip(*read_aligned(fetch(text.source), fetch(text.target)), strict=True)
    return list(pairs)[: 3 * LINES + VALID_LINES + TEST_LINES]


def archives(pairs: list[tuple[str, str]]) -> dict[str, bytes]:
    """Small archives with the names and members of WMT14's, by their addresses."""
    members: dict[str, dict[str, bytes]] = {}
    for number, text in enumerate(WMT14_EN_DE.train):
        chosen = pairs[number * LINES : (number + 1) * LINES]
        for file, lines in zip((text.source, text.target), zip(*chosen, strict=True), strict=True):
            content = "".join(f"{line}\n" for line in lines).encode()
            held = members.setdefault(file.location, {"README": b"to be left alone\n"})
            assert file.member is not None
            held[file.member] = gzip.compress(content) if file.member[-3:] == ".gz" else content
    return {location: archive(held) for location, held in members.items()}


def fill_sacrebleu(folder: Path, pairs: list[tuple[str, str]]) -> None:
    """The paper's sets as sacreBLEU keeps them."""
    rest = pairs[-VALID_LINES - TEST_LINES :]
    for name, held in (("wmt13", rest[:VALID_LINES]), ("wmt14/full", rest[VALID_LINES:])):
        (folder / name).mkdir(parents=True)
        for field, lines in zip(("src", "ref"), zip(*held, strict=True), strict=True):
            path = folder / name / f"{name.replace('/', '_')}.en-de.{field}"
            path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


@pytest.mark.slow
def test_from_a_failing_server_to_a_score(
    tmp_path: Path, begin: Start, call: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("SACREBLEU", str(tmp_path / "sacrebleu"))
    monkeypatch.setattr(download, "_TIMEOUT", (1, 0.3))
    monkeypatch.setattr(download, "_BACKOFF", 0)
    pairs = phrases()
    found, file = archives(pairs), tmp_path / "rehearsal.py"
    sums = {where: (len(x), hashlib.sha256(x).hexdigest()) for where, x in found.items()}
    file.write_text(DECLARATION.format(found=sums))
    fill_sacrebleu(tmp_path / "sacrebleu", pairs)
    served = {f"/{location.partition('://')[2]}": x for location, x in found.items()}
    with ScriptedServer(served).running() as server:
        monkeypatch.setenv("DATA_MIRROR", server.url)
        server.scripts = {
            EUROPARL: [stalled(700), stalled(11), cut(1_300), status(503)],
            COMMON_CRAWL: [cut(800), ignoring_ranges],
            NEWS_COMMENTARY: [other(bytes(len(served[NEWS_COMMENTARY])))],
        }
        partial = part_of(cache_directory() / "downloads" / EUROPARL[1:])
        killed = begin("experiments", "prepare", file)
        killed.wait_until(lambda: partial.exists() and partial.stat().st_size == 700)
        assert killed.finish(signal.SIGKILL).code == -signal.SIGKILL

        assert call("prepare", file).code == 0
        corpus = prepare(find_experiment(str(file)).config)
        assert 0.9 * 3 * LINES < len(corpus.store("train")) <= 3 * LINES
        for split, count in (("valid", VALID_LINES), ("test", TEST_LINES)):
            source, reference = corpus.text(split)
            assert len(source) == len(reference) == len(corpus.store(split)) == count
        assert server.ranges == [
            None, "bytes=700-", "bytes=711-", "bytes=2011-", "bytes=2011-",
            None, "bytes=800-", None, None,
        ]  # fmt: skip

        assert call("train", file, "--directory", tmp_path / "run").code == 0
        said = call("evaluate", tmp_path / "run", "--split", "wmt13").stdout
        assert said.startswith("wmt13  BLEU ") and f"\n{VALID_LINES} lines, beam 2" in said
        assert len(server.paths) == 9, "all was fetched once"
