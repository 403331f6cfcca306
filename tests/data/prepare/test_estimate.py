"""The announcement of what preparing a corpus will take."""

from __future__ import annotations

import dataclasses
import re
import shutil
from types import SimpleNamespace

import pytest

from tests.samples import tiny
from transformer.corpus import Corpus
from transformer.data.corpora.declared import WMT14_EN_DE, WMT14_EN_FR
from transformer.data.fetch import texts
from transformer.data.prepare.estimate import announce, preparation_cost
from transformer.data.prepare.prepare import prepare
from transformer.errors import InputError


@pytest.fixture(autouse=True)
def _test_sets_available(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "is_available", lambda name, pair: True)


def free(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=size))


def test_estimate_from_archive_sizes_and_pairs() -> None:
    german, french = preparation_cost([WMT14_EN_DE], 2), preparation_cost([WMT14_EN_FR], 2)
    alone = preparation_cost([WMT14_EN_DE], 1)
    assert german is not None and french is not None and alone is not None
    assert german.fetched_bytes == 657_632_379 + 918_311_367 + 80_418_416
    assert german.addresses == 3 and french.addresses == 5
    assert german.disk_bytes > german.fetched_bytes + 4_000_000 * 300
    assert french.disk_bytes > 5 * german.disk_bytes
    assert alone.seconds > german.seconds > 60


def test_announcement_is_one_line_and_needs_disk_space(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    free(2**50, monkeypatch)
    announce(WMT14_EN_DE, 2)
    (line,) = capsys.readouterr().err.splitlines()
    expected = (
        r"wmt14_en_de, about 4,508,785 pairs: 1\.7 GB to fetch from 3 addresses, about \d\.\d GB"
    )
    assert re.match(expected, line)
    free(2**20, monkeypatch)
    with pytest.raises(InputError, match=r"wmt14_en_de needs \d\.\d GB in .* 1\.0 MB are free"):
        announce(WMT14_EN_DE, 2)


def test_only_large_corpora_are_announced_and_only_once(
    files_corpus: Corpus, capsys: pytest.CaptureFixture[str]
) -> None:
    prepare(tiny(files_corpus))
    assert capsys.readouterr().err == ""
    for pairs in (99_999, 1_000_003):
        prepare(tiny(dataclasses.replace(files_corpus, name=f"of_{pairs}", pairs=pairs)))
        prepare(tiny(dataclasses.replace(files_corpus, name=f"of_{pairs}", pairs=pairs)))
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("of_1000003, about 1,000,003 pairs: nothing to fetch, about ")
