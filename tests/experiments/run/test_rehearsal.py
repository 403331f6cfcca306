"""A small WMT14, from its archives to a score, with a server that fails in many ways."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from experiments.catalog.find import find_experiment
from experiments.cli import PROGRAM
from tests.data.scripted_server import (
    ScriptedServer,
    cut,
    ignoring_ranges,
    other,
    stalled,
    status,
)
from tests.experiments.conftest import Command, Start
from tests.experiments.run.wmt14_archives import (
    LINES,
    TEST_LINES,
    VALID_LINES,
    archives,
    declare,
    fill_sacrebleu,
)
from transformer.corpus import Corpus
from transformer.data.corpora.declared import WMT14_EN_DE, WMT14_EN_FR
from transformer.data.fetch import download
from transformer.data.fetch.cache import cache_directory
from transformer.data.prepare.prepare import prepare as prepare_corpus
from transformer.data.prepared import PreparedCorpus

EUROPARL = "/www.statmt.org/wmt13/training-parallel-europarl-v7.tgz"
COMMON_CRAWL = "/www.statmt.org/wmt13/training-parallel-commoncrawl.tgz"
NEWS_COMMENTARY = "/www.statmt.org/wmt14/training-parallel-nc-v9.tgz"


@pytest.fixture(autouse=True)
def _surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty cache and short time-outs."""
    monkeypatch.setenv("DATA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("SACREBLEU", str(tmp_path / "sacrebleu"))
    monkeypatch.setattr(download, "_TIMEOUT", (1, 0.3))
    monkeypatch.setattr(download, "_BACKOFF", 0)


def prepare(file: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """The exit code of ``python -m experiments prepare``, in this process and its patches."""
    monkeypatch.setattr(sys, "argv", ["experiments", "prepare", str(file)])
    return PROGRAM.run()


def prepared(file: Path) -> PreparedCorpus:
    return prepare_corpus(find_experiment(str(file)).config)


def check(corpus: PreparedCorpus, declared: Corpus) -> None:
    """Most of the training text is there, and the test sets are whole."""
    lines = LINES * len(declared.train)
    assert 0.9 * lines < len(corpus.store("train")) <= lines
    for split, count in (("valid", VALID_LINES), ("test", TEST_LINES)):
        source, reference = corpus.text(split)
        assert len(source) == len(reference) == len(corpus.store(split)) == count
        assert source[0].startswith("R&D: ") and reference[0].startswith("R&D: ")


def test_en_de_from_a_failing_server_to_a_score(
    tmp_path: Path, begin: Start, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = archives(WMT14_EN_DE)
    file = declare(tmp_path / "rehearsal.py", WMT14_EN_DE, served)
    fill_sacrebleu(tmp_path / "sacrebleu", "de")
    with ScriptedServer(served).running() as server:
        monkeypatch.setenv("DATA_MIRROR", server.url)
        server.scripts = {
            EUROPARL: [stalled(700), stalled(11), cut(1_300), status(503)],
            COMMON_CRAWL: [cut(800), ignoring_ranges],
            NEWS_COMMENTARY: [other(bytes(len(served[NEWS_COMMENTARY])))],
        }
        partial = cache_directory() / "downloads" / f"{EUROPARL[1:]}.part"
        killed = begin("experiments", "prepare", file)
        killed.wait_until(lambda: partial.exists() and partial.stat().st_size == 700)
        assert killed.finish(signal.SIGKILL).code == -signal.SIGKILL

        assert prepare(file, monkeypatch) == 0
        check(prepared(file), WMT14_EN_DE)
        assert server.ranges == [
            None, "bytes=700-", "bytes=711-", "bytes=2011-", "bytes=2011-",
            None, "bytes=800-", None, None,
        ]  # fmt: skip

        run = tmp_path / "run"
        ended = command("experiments", "train", file, "--directory", run)
        assert ended.code == 0, ended
        ended = command("experiments", "evaluate", run, "--split", "wmt13")
        assert ended.code == 0, ended
        assert ended.stdout.startswith("wmt13  BLEU ")
        assert f"\n{VALID_LINES} lines, beam 2" in ended.stdout
        assert len(server.paths) == 9, "all was fetched once"


def test_en_fr_with_packed_members_in_a_plain_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = archives(WMT14_EN_FR)
    assert len(served) == 5
    file = declare(tmp_path / "rehearsal.py", WMT14_EN_FR, served)
    fill_sacrebleu(tmp_path / "sacrebleu", "fr")
    with ScriptedServer(served).running() as server:
        monkeypatch.setenv("DATA_MIRROR", server.url)
        assert prepare(file, monkeypatch) == 0
    check(prepared(file), WMT14_EN_FR)
