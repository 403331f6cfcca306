"""Settings that the amount of one's own text suggests."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from experiments.catalog.find import EXPERIMENTS, find_experiment
from experiments.catalog.own_text import Amount, amount_of
from tests.samples import write_corpus
from transformer.config import override
from transformer.corpus import Corpus
from transformer.data.corpora.declared import CLDR_EN_DE, MULTI30K_EN_DE
from transformer.data.corpora.folders import folder_corpus
from transformer.data.prepare.prepare import prepare

MB = 10**6


def test_the_amount_is_that_of_the_training_text_unpacked(tmp_path: Path) -> None:
    folder = write_corpus(tmp_path / "numbers")
    files = [folder / "train.en", folder / "train.de"]
    text = "".join(path.read_text("utf-8") for path in files)
    characters = len({*text} - {" ", "\n"})
    expected = Amount(211, len(text.encode()), characters)
    assert amount_of(folder_corpus(folder)) == expected
    for path in files:
        path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    (folder / "train-more.en").write_bytes(b"\xef\xbb\xbfone\r\n\xff\r\n")
    (folder / "train-more.de").write_bytes(b"\xc3\x9f\r\n\r\n")
    found = amount_of(folder_corpus(folder))
    # Neither marks nor the ends of lines of Windows count; of a wrong byte the byte alone.
    assert found == Amount(213, expected.bytes + len(b"one\n\xff\n\xc3\x9f\n\n"), characters + 1)


@pytest.mark.parametrize(
    ("megabytes", "like"),
    [(0, "cldr"), (1, "cldr"), (2, "multi30k"), (15, "multi30k"), (16, "wmt14_en_de_small"),
     (250, "wmt14_en_de_small"), (251, "wmt14_en_de_base")],
)  # fmt: skip
def test_the_nearest_of_our_corpora_has_its_settings(megabytes: int, like: str) -> None:
    assert Amount(1, megabytes * MB, 50).like == like
    assert EXPERIMENTS[like].config.data.corpus.task == "translation"


@pytest.mark.parametrize(
    ("corpus", "count", "pieces"), [(CLDR_EN_DE, 438_850, 500), (MULTI30K_EN_DE, 3_911_502, 4_000)]
)
def test_our_own_corpora_would_get_their_own_settings(
    corpus: Corpus, count: int, pieces: int
) -> None:
    """The bytes are those of their training text."""
    amount = Amount(0, count, 90)
    config = EXPERIMENTS[amount.like].config
    assert config.data.corpus == corpus and config.model.vocab_size == pieces
    assert amount.word_pieces(pieces) == pieces


def test_word_pieces_are_fewer_for_little_text_and_have_room_for_its_characters() -> None:
    assert Amount(1, 800 * 1_009, 31).word_pieces(4_000) == 1_009
    assert Amount(1, 800 * 7, 31).word_pieces(4_000) == 62
    assert Amount(1, 30 * MB, 5_003).word_pieces(4_000) == 10_006  # as of Chinese
    assert Amount(0, 999 * MB, 0).word_pieces(37_000) == 37_000  # not counted


def test_a_text_is_prepared_with_the_settings_that_its_amount_suggests(tmp_path: Path) -> None:
    name = f"files:{write_corpus(tmp_path / 'numbers')}"
    found = find_experiment(name)
    assert found.description.endswith(
        "211 pairs, 8,449 bytes of training text, with the settings of cldr"
    )
    corpus = found.config.data.corpus
    assert found.config == override(EXPERIMENTS["cldr"].config, corpus=corpus, vocab_size=42)
    assert len(prepare(found.config).vocabulary()) == 42
    liked = find_experiment(name, "multi30k_modern", vocab_size=61).config
    assert liked == override(EXPERIMENTS["multi30k_modern"].config, corpus=corpus, vocab_size=61)
