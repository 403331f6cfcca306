"""Source and target as two columns of one file."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from experiments.catalog.own_text import amount_of
from tests.samples import number_pairs, tiny, write_corpus
from transformer.config import override
from transformer.data.columns import write_column
from transformer.data.corpora.folders import folder_corpus
from transformer.data.fetch.texts import fetch
from transformer.data.prepare.prepare import prepare
from transformer.data.text import read_text
from transformer.errors import BlockedError, InputError

COUNTS = {"train": 211, "valid": 13, "test": 11}


def write_tables(folder: Path, header: str = "", reverse: bool = False) -> Path:
    """The numbers of :func:`write_corpus` in tables, in the order of English and German."""
    folder.mkdir()
    for seed, (split, count) in enumerate(COUNTS.items()):
        pairs = number_pairs(count, seed)
        rows = [f"{b}\t{a}" if reverse else f"{a}\t{b}" for a, b in pairs]
        text = "".join(f"{row}\n" for row in [header, *rows] if row)
        (folder / f"{split}.tsv").write_text(text, encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("header", "languages", "reverse"),
    [
        ("en\tde", None, False),
        ("de\ten", None, True),
        ("de\ten", ("en", "de"), True),
        ("source\ttarget", ("en", "de"), False),
        ("tgt\tsrc", ("en", "de"), True),
        ("", ("en", "de"), False),
    ],
)
def test_tables_are_prepared_as_two_files_are(
    header: str, languages: tuple[str, str] | None, reverse: bool, tmp_path: Path
) -> None:
    files = folder_corpus(write_corpus(tmp_path / "files" / "numbers"))
    tables = folder_corpus(write_tables(tmp_path / "numbers", header, reverse), languages)
    assert (tables.source_language, tables.target_language) == ("en", "de")
    for ours, theirs in zip(tables.files, files.files, strict=True):
        assert read_text(fetch(ours)) == read_text(fetch(theirs))
    assert amount_of(tables).pairs == amount_of(files).pairs == 211
    prepared = [prepare(tiny(corpus)) for corpus in (tables, files)]
    assert prepared[0].report() == prepared[1].report()
    ours, theirs = (
        {
            path.relative_to(each.directory): path.read_bytes()
            for path in each.directory.rglob("*")
            if path.is_file() and path.name != "manifest.json"  # which has the names of the files
        }
        for each in prepared
    )
    assert ours == theirs


def test_the_other_direction_and_a_third_column(tmp_path: Path) -> None:
    folder = tmp_path / "numbers"
    folder.mkdir()
    for split in ("train", "valid"):
        text = b"\xef\xbb\xbfid\ten\tde\r\n7\tone\teins\r\n8\ttwo\tzwei\r\n"
        (folder / f"{split}.tsv.gz").write_bytes(gzip.compress(text))
    corpus = folder_corpus(folder, ("de", "en"))
    assert [read_text(fetch(file)) for file in corpus.files[:2]] == [
        ["eins", "zwei"],
        ["one", "two"],
    ]
    assert corpus.valid.source.name == f"column de of {folder / 'valid.tsv.gz'}"
    assert amount_of(corpus).pairs == 2


def test_a_line_with_other_columns_is_left_out_of_training_and_counted(tmp_path: Path) -> None:
    folder = write_tables(tmp_path / "numbers", "en\tde")
    with (folder / "train.tsv").open("ab") as file:
        file.write(b"one\ttwo\tthree\nfour\n\n\tnull\ncaf\xe9\teins\nzero\tnull\r\n")
    train = prepare(tiny(folder_corpus(folder))).report()[0]
    assert (train.lines, train.kept) == (217, 212)
    assert train.dropped == {"wrong number of columns": 2, "empty side": 2, "invalid UTF-8": 1}
    assert train.text == "numbers/train"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"one\ttwo\tthree", "line 15 has 3 columns, but line 1 has 2"),
        (b"", "line 15 has 1 columns, but line 1 has 2"),
        (b"caf\xe9\teins", "line 15 is not UTF-8"),
        (b"one\t ", "line 15 is empty: a score needs a reference"),
    ],
)
def test_a_line_that_is_scored_must_be_sound(line: bytes, said: str, tmp_path: Path) -> None:
    folder = write_tables(tmp_path / "numbers", "en\tde")
    with (folder / "valid.tsv").open("ab") as file:
        file.write(line + b"\none\teins\n")
    with pytest.raises(InputError, match=said) as error:
        prepare(tiny(folder_corpus(folder)))
    assert str(folder / "valid.tsv") in str(error.value)


@pytest.mark.parametrize(
    ("train", "languages", "said"),
    [
        ("Hello.\tHallo.\n", None, "train.tsv names no languages: put a line such as en, tab, de"),
        ("src\ttgt\nHello.\tHallo.\n", None, "train.tsv names no languages: put a line such as"),
        ("Hello. Hallo.\n", None, "train.tsv, line 1 has no tab"),
        ("", None, "train.tsv is empty"),
        ("en\tde\nten\tzwölf\n", None, "train.tsv, line 1 is not UTF-8: convert the file"),
        ("en\tfr\nyes\toui\n", ("en", "de"), "train.tsv has the columns en and fr, not en and de"),
        ("yes\tja\n", ("en", "de"), "some tables name their columns in the first line, others"),
    ],
)
def test_an_unclear_table_is_named(
    train: str, languages: tuple[str, str] | None, said: str, tmp_path: Path
) -> None:
    folder = write_tables(tmp_path / "numbers", "en\tde")
    (folder / "train.tsv").write_bytes(train.encode("utf-16" if "ö" in train else "utf-8"))
    with pytest.raises(InputError, match=said):
        folder_corpus(folder, languages)


@pytest.mark.parametrize("column", ["0", "3", "²", "fr"])
def test_a_column_that_is_not_there_is_named(column: str, tmp_path: Path) -> None:
    table = write_tables(tmp_path / "numbers", "en\tde") / "train.tsv"
    with pytest.raises(InputError, match=f"no column {column}: its first line has en, de"):
        write_column(table, column, tmp_path / "column")
    assert not (tmp_path / "column").exists()


def test_tables_and_files_are_not_mixed(tmp_path: Path) -> None:
    folder = write_tables(tmp_path / "numbers", "en\tde")
    (folder / "train.en").write_text("one\n")
    with pytest.raises(InputError, match=r"numbers holds tables \(\.tsv\) and train\.en: remove"):
        folder_corpus(folder)


def test_a_run_refuses_a_table_that_has_changed_since(tmp_path: Path) -> None:
    folder = write_tables(tmp_path / "numbers", "en\tde")
    config = tiny(folder_corpus(folder))
    before = prepare(config).manifest
    assert prepare(override(config, seed=5), expected=before).manifest == before
    with (folder / "train.tsv").open("a") as file:
        file.write("one\teins\n")
    with pytest.raises(BlockedError, match=r"column en of .*train\.tsv, column de of .* changed"):
        prepare(config, expected=before)


@pytest.mark.parametrize(
    ("more", "said"), [(1, "line 14 is empty: "), (3, "14 is empty, and so are 2 others: ")]
)
def test_an_empty_reference_is_named(more: int, said: str, tmp_path: Path) -> None:
    folder = write_corpus(tmp_path / "numbers")
    for language, line in (("en", "one\n"), ("de", " \n")):
        with (folder / f"valid.{language}").open("a") as file:
            file.write(more * line)
    with pytest.raises(InputError, match=said) as error:
        prepare(tiny(folder_corpus(folder)))
    assert str(folder / "valid.de") in str(error.value)
