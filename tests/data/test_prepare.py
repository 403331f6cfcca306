"""From files to a prepared folder: once, whole or not at all."""

from __future__ import annotations

import dataclasses
import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.samples import number_pairs, tiny, write_corpus, write_pairs
from transformer.config import Config, override, to_dict
from transformer.data import prepare as prepare_module
from transformer.data.fetch import cache_directory
from transformer.data.folders import files_corpus, folder_corpus
from transformer.data.prepare import prepare
from transformer.errors import InputError

ROOT = Path(__file__).parents[2]


def prepared_folders() -> list[str]:
    folder = cache_directory() / "prepared"
    return [path.name for path in folder.iterdir() if path.is_dir()]


def config_of(folder: Path, **changes: object) -> Config:
    return tiny(folder_corpus(folder), **changes)


def forbid_work(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any) -> None:
        raise AssertionError("did the work again")

    monkeypatch.setattr(prepare_module, "_write", fail)


def test_each_split_comes_back_as_it_was_written(tiny_config: Config) -> None:
    corpus = prepare(tiny_config)
    vocabulary = corpus.vocabulary()
    for seed, (split, count) in enumerate({"train": 211, "valid": 13, "test": 11}.items()):
        store = corpus.store(split)
        encoded = [[side.tolist() for side in store[i]] for i in range(len(store))]
        pairs = [tuple(vocabulary.decode(pair)) for pair in encoded]
        assert pairs == number_pairs(count, seed)
        assert len(vocabulary) == tiny_config.model.vocab_size
    assert corpus.text("valid") == tuple(map(list, zip(*number_pairs(13, 1), strict=True)))
    assert corpus.report() == {
        "train": {
            "lines": 211, "kept": 211, "invalid UTF-8": 0, "NUL character": 0, "empty side": 0,
            "too long": 0,
        },
        "valid": {"lines": 13, "kept": 13},
        "test": {"lines": 11, "kept": 11},
    }  # fmt: skip


def test_the_folder_holds_nothing_but_its_parts(tiny_config: Config) -> None:
    directory = prepare(tiny_config).directory
    files = [path for path in directory.rglob("*") if path.is_file()]
    assert {str(path.relative_to(directory)) for path in files} == {
        "vocabulary.model", "report.json", "train/offsets.npy", "train/tokens.u16",
        *(f"{split}/{name}" for split in ("valid", "test")
          for name in ("offsets.npy", "tokens.u16", "source.txt", "reference.txt")),
    }  # fmt: skip


def test_a_second_call_does_nothing(tiny_config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    first = prepare(tiny_config)
    forbid_work(monkeypatch)
    assert prepare(tiny_config) == first
    # what does not decide the contents does not ask for them anew
    assert prepare(override(tiny_config, tokens_per_batch=211, seed=7, d_ff=5)) == first


def test_what_decides_the_contents_gives_a_folder_of_its_own(tmp_path: Path) -> None:
    config = config_of(write_corpus(tmp_path / "numbers"))
    folders = [
        prepare(changed).directory
        for changed in (
            config,
            override(config, vocab_size=67),
            override(config, max_length=5),
        )
    ]
    (tmp_path / "numbers" / "valid.de").write_text("null\n" * 13)
    folders.append(prepare(config).directory)
    assert len(set(folders)) == 4
    assert len(prepared_folders()) == 4


def test_a_crash_leaves_nothing_and_the_next_call_succeeds(
    tiny_config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(prepare_module, "_write_scored", lambda *args: [][0])
        with pytest.raises(IndexError):
            prepare(tiny_config)
    assert prepared_folders() == []
    assert prepare(tiny_config).report()["train"]["kept"] == 211


def test_what_a_kill_left_is_cleared_away(tiny_config: Config) -> None:
    directory = prepare(tiny_config).directory
    part = directory.with_name(f"{directory.name}.part")
    directory.rename(part)
    (part / "train" / "tokens.u16").unlink()
    (part / "stray").write_text("half-written")
    assert prepare(tiny_config).directory == directory
    assert not (directory / "stray").exists()
    assert prepared_folders() == [directory.name]


def test_pairs_over_max_length_are_left_out_of_training_and_counted(tmp_path: Path) -> None:
    config = config_of(write_corpus(tmp_path / "numbers"))
    everything = prepare(config).store("train").lengths
    limit = 11
    fitting = everything.max(axis=1) <= limit
    assert 0 < fitting.sum() < 211
    corpus = prepare(override(config, max_length=limit))
    assert np.array_equal(corpus.store("train").lengths, everything[fitting])
    report = corpus.report()
    assert report["train"]["kept"] == fitting.sum()
    assert report["train"]["too long"] == 211 - fitting.sum()
    assert len(corpus.store("valid")) == 13, "what is scored stays whole"


def test_every_line_read_is_kept_or_dropped_for_a_reason(tmp_path: Path) -> None:
    folder = write_corpus(tmp_path / "numbers")
    with (folder / "train.en").open("ab") as en, (folder / "train.de").open("ab") as de:
        en.write(b"one\0\n\none\n" + b"one " * 97 + b"\n")
        de.write(b"eins\neins\n\xfc\n" + b"eins " * 97 + b"\n")
    report = prepare(config_of(folder)).report()["train"]
    assert report == {
        "lines": 215, "kept": 211, "invalid UTF-8": 1, "NUL character": 1, "empty side": 1,
        "too long": 1,
    }  # fmt: skip


def test_texts_are_joined_in_their_order(tmp_path: Path) -> None:
    folder = write_corpus(tmp_path / "numbers")
    write_pairs(folder, "more", number_pairs(5, seed=29))

    def pair(split: str) -> tuple[Path, Path]:
        return folder / f"{split}.en", folder / f"{split}.de"

    corpus = files_corpus(
        "two", languages=("en", "de"), train=[pair("more"), pair("train")], valid=pair("valid")
    )
    prepared = prepare(tiny(corpus))
    vocabulary, store = prepared.vocabulary(), prepared.store("train")
    found = [vocabulary.decode([store[i][0].tolist()])[0] for i in range(len(store))]
    assert found == [s for s, _ in [*number_pairs(5, 29), *number_pairs(211, 0)]]
    assert not prepared.has("test") and prepared.has("valid")


def test_packed_files_give_what_plain_ones_do(tmp_path: Path) -> None:
    plain = prepare(config_of(write_corpus(tmp_path / "numbers")))
    packed = write_corpus(tmp_path / "packed")
    for path in list(packed.iterdir()):
        path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    other = prepare(config_of(packed))
    for name in ("vocabulary.model", "train/tokens.u16", "valid/reference.txt"):
        assert (other.directory / name).read_bytes() == (plain.directory / name).read_bytes()


@pytest.mark.parametrize(
    ("split", "content", "message"),
    [
        ("train", b"", "hold no usable pair: the corpus is empty"),
        ("train", b"\n\n", "hold no usable pair: the corpus is empty"),
        ("valid", b"", r"valid\.en and .*valid\.de are empty"),
        ("test", b"", r"test\.en and .*test\.de are empty"),
    ],
)
def test_an_empty_text_is_named(split: str, content: bytes, message: str, tmp_path: Path) -> None:
    folder = write_corpus(tmp_path / "numbers")
    for language in ("en", "de"):
        (folder / f"{split}.{language}").write_bytes(content)
    with pytest.raises(InputError, match=message):
        prepare(config_of(folder))
    assert prepared_folders() == []


def test_a_corpus_of_which_every_pair_is_too_long_is_refused(tmp_path: Path) -> None:
    folder = write_corpus(tmp_path / "numbers")
    longer = [(f"{source} one two", target) for source, target in number_pairs(211, seed=5)]
    write_pairs(folder, "train", longer)
    with pytest.raises(InputError, match=r"train\.en: every pair is longer than max_length"):
        prepare(config_of(folder, max_length=3))
    assert prepared_folders() == []


@pytest.mark.parametrize("split", ["train", "valid", "test"])
def test_sides_of_different_length_are_refused_by_name(split: str, tmp_path: Path) -> None:
    folder = write_corpus(tmp_path / "numbers")
    with (folder / f"{split}.de").open("a") as file:
        file.write("null\n")
    with pytest.raises(InputError, match=rf"{split}\.en has (\d+) lines but .*{split}\.de has \d+"):
        prepare(config_of(folder))
    assert prepared_folders() == []


def test_an_undecodable_line_that_is_scored_is_refused_by_name(tmp_path: Path) -> None:
    folder = write_corpus(tmp_path / "numbers")
    lines = (folder / "valid.de").read_bytes().split(b"\n")
    (folder / "valid.de").write_bytes(b"\n".join([*lines[:4], b"f\xfcnf", *lines[5:]]))
    with pytest.raises(InputError, match=r"valid\.de, line 5 is not UTF-8"):
        prepare(config_of(folder))


def test_a_vocabulary_that_the_text_does_not_allow_leaves_nothing(tiny_config: Config) -> None:
    with pytest.raises(InputError, match="vocab_size 5003 is more than the text allows"):
        prepare(override(tiny_config, vocab_size=5_003))
    assert prepared_folders() == []


PREPARE_AND_TELL = """
import json, sys, time
from transformer.config import Config, from_dict
from transformer.data import prepare as module

write = module._write
def slowly(*args):
    print("working", flush=True)
    time.sleep(0.5)
    write(*args)

module._write = slowly
print(module.prepare(from_dict(Config, json.loads(sys.argv[1]))).report()["train"]["kept"])
"""


def test_of_processes_at_the_same_time_one_does_the_work(tiny_config: Config) -> None:
    arguments = [sys.executable, "-c", PREPARE_AND_TELL, json.dumps(to_dict(tiny_config))]
    processes = [
        subprocess.Popen(arguments, cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    outputs = [process.communicate(timeout=120)[0].split() for process in processes]
    assert sorted(outputs) == [["211"], ["working", "211"]]
    assert len(prepared_folders()) == 1


def test_the_name_of_a_corpus_need_not_differ_where_its_text_does(tmp_path: Path) -> None:
    one = config_of(write_corpus(tmp_path / "numbers"))
    other = config_of(write_corpus(tmp_path / "other", train=101))
    corpus = dataclasses.replace(other.data.corpus, name=one.data.corpus.name)
    assert prepare(one).report() != prepare(override(one, corpus=corpus)).report()
