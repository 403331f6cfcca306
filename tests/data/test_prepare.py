"""From files to a prepared folder: once, complete or not at all; and what has changed since."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.samples import (
    ENGLISH,
    GERMAN,
    archive,
    flip_a_bit,
    number_pairs,
    tiny,
    write_corpus,
    write_pairs,
)
from transformer.config import Config, override, to_dict
from transformer.corpus import Corpus, ParallelText, TextFile
from transformer.data import prepared as prepared_module
from transformer.data.corpora.declared import WMT14_EN_DE
from transformer.data.corpora.folders import files_corpus, folder_corpus
from transformer.data.fetch.cache import cache_directory, sha256_of
from transformer.data.prepare import pairs as pairs_module
from transformer.data.prepare import prepare as prepare_module
from transformer.data.prepare.pairs import CleanText, clean, clean_pair
from transformer.data.prepare.prepare import prepare, verify
from transformer.data.prepared import VOCABULARY_FILE, TextReport, damaged_files
from transformer.data.vocabulary import train_vocabulary
from transformer.errors import InputError

ROOT = Path(__file__).parents[2]


def prepared_folders() -> list[str]:
    folder = cache_directory() / "prepared"
    return [path.name for path in folder.iterdir() if path.is_dir()]


def files_in(directory: Path) -> dict[str, bytes]:
    files = [path for path in directory.rglob("*") if path.is_file()]
    return {str(path.relative_to(directory)): path.read_bytes() for path in files}


def test_each_split_is_read_back(tiny_config: Config) -> None:
    corpus = prepare(tiny_config)
    vocabulary = corpus.vocabulary()
    for seed, (split, count) in enumerate({"train": 211, "valid": 13, "test": 11}.items()):
        store = corpus.store(split)
        encoded = [[side.tolist() for side in store[i]] for i in range(len(store))]
        decoded = [tuple(map(vocabulary.decode, pair)) for pair in encoded]
        assert decoded == number_pairs(count, seed)
    assert len(vocabulary) == tiny_config.model.vocab_size
    assert corpus.text("valid") == tuple(map(list, zip(*number_pairs(13, 1), strict=True)))
    assert corpus.report() == [
        TextReport(split="train", text="numbers/train", lines=211, kept=211),
        TextReport(split="valid", text="numbers/valid", lines=13, kept=13),
        TextReport(split="test", text="numbers/test", lines=11, kept=11),
    ]
    assert {path.name for path in corpus.directory.iterdir()} == {
        "vocabulary.model", "report.json", "manifest.json", "train", "valid", "test",
    }  # fmt: skip


def test_further_references_are_kept_beside_the_first(tiny_config: Config, tmp_path: Path) -> None:
    corpus = tiny_config.data.corpus
    one = prepare(tiny_config)
    lines = one.text("valid")[1]
    others = [tmp_path / "second.de", tmp_path / "third.de"]
    for number, path in enumerate(others):
        path.write_text("".join(f"{line} {number}\n" for line in lines))
    references = tuple(TextFile(location=str(path)) for path in others)
    several = dataclasses.replace(
        corpus, valid=dataclasses.replace(corpus.valid, references=references)
    )
    found = prepare(override(tiny_config, corpus=several))
    assert found.directory != one.directory
    assert found.text("valid") == one.text("valid")
    expected = [[f"{line} {number}" for line in lines] for number in range(2)]
    assert found.more_references("valid") == expected
    assert (one.more_references("valid"), found.more_references("test")) == ([], [])
    stored = [corpus.store("valid")[3][1].tolist() for corpus in (one, found)]
    assert stored[0] == stored[1]  # validation is of the first
    others[1].write_text("too short\n")
    with pytest.raises(InputError, match=r"has \d+ lines but .*third\.de has 1: they must be"):
        prepare(override(tiny_config, corpus=several))


def test_only_settings_that_change_the_contents_change_the_folder(
    tiny_config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = prepare(tiny_config)
    changes: list[dict[str, object]] = [
        {"vocab_size": 67}, {"max_length": 5}, {"max_length_ratio": 1.5}, {"drop_duplicates": True}
    ]  # fmt: skip
    folders = {prepare(override(tiny_config, **each)).directory for each in changes}
    assert len({first.directory, *folders}) == 5
    monkeypatch.setattr(prepare_module, "_prepare", lambda *_: pytest.fail("did it again"))
    assert prepare(override(tiny_config, tokens_per_batch=211, seed=7, d_ff=5)) == first


# For every n-th operation on files: an empty cache, a process killed before it, and a second one.
KILL_AND_PREPARE = """
import json, os, signal, sys
from transformer.config import Config, from_dict
from transformer.data.prepare import pairs
from transformer.data.prepare.prepare import prepare

os.fsync = lambda file: None  # takes most of the time, and is for power cuts
pairs.CHUNK_PAIRS = 23
config = from_dict(Config, json.loads(sys.argv[1]))
left = None

def hook(event, arguments):
    global left
    writes = event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR)
    if left and (writes or event in ("os.rename", "os.mkdir", "os.remove", "os.rmdir")):
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(hook)
killed, number = True, 0
while killed:
    number += int(sys.argv[3])
    os.environ["DATA_CACHE"] = f"{sys.argv[2]}/{number}"
    if (child := os.fork()) == 0:
        left = number
        prepare(config)
        os._exit(0)
    killed = os.WIFSIGNALED(os.waitpid(child, 0)[1])
    print(prepare(config).directory)
"""


@pytest.mark.slow
@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.slow)])
def test_after_a_kill_at_any_moment_the_next_start_gives_the_same_bytes(
    every: int, tiny_config: Config, tmp_path: Path
) -> None:
    undisturbed = files_in(prepare(tiny_config).directory)
    arguments = [json.dumps(to_dict(tiny_config)), str(tmp_path), str(every)]
    output = subprocess.run(
        [sys.executable, "-c", KILL_AND_PREPARE, *arguments],
        cwd=ROOT, capture_output=True, text=True, timeout=240, check=True,
    ).stdout.splitlines()  # fmt: skip
    assert len(output) > 30 // every
    for directory in map(Path, output):
        assert files_in(directory) == undisturbed
        assert [path for path in directory.parent.iterdir() if path.is_dir()] == [directory]


def test_a_full_disk_is_named_and_finished_stages_are_not_repeated(
    tiny_config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(prepare_module, "write_scored", fill)
        with pytest.raises(OSError, match=f"No space left on device: '{cache_directory()}"):
            prepare(tiny_config)
    for name in ("clean", "train_vocabulary", "encode"):
        monkeypatch.setattr(prepare_module, name, lambda *args, **_: pytest.fail("did it again"))
    assert prepare(tiny_config).report()[0].kept == 211


def test_texts_are_read_in_order_and_every_line_is_kept_or_dropped_for_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pairs_module, "CHUNK_PAIRS", 23)
    folder = write_corpus(tmp_path / "numbers")
    write_pairs(folder, "empty", [("one", "")])
    write_pairs(folder, "more", [*number_pairs(5, 29), number_pairs(211, 0)[3], ("nine", "neun")])
    with (folder / "more.en").open("ab") as en, (folder / "more.de").open("ab") as de:
        en.write(b"nine\none\0\n\none\n" + b"one " * 97 + b"\n" + b"one " * 9 + b"\n")
        de.write(b"neun\neins\neins\n\xfc\n" + b"eins " * 97 + b"\neins\n")

    def pair(split: str) -> tuple[Path, Path]:
        return folder / f"{split}.en", folder / f"{split}.de"

    corpus = files_corpus(
        "three",
        languages=("en", "de"),
        train=[pair("empty"), pair("train"), pair("more")],
        valid=pair("valid"),
    )
    prepared = prepare(tiny(corpus, drop_duplicates=True, max_length_ratio=4.0))
    vocabulary, store = prepared.vocabulary(), prepared.store("train")
    found = [vocabulary.decode(store[i][0].tolist()) for i in range(len(store))]
    read = [*number_pairs(211, 0), *number_pairs(5, 29), ("nine", "neun")]
    assert found == [source for source, _ in dict.fromkeys(read)]
    assert not prepared.has("test") and prepared.has("valid")
    empty, train, more, valid = prepared.report()
    assert empty == TextReport(
        split="train", text="numbers/empty", lines=1, kept=0, dropped={"empty side": 1}
    )
    duplicates = {"duplicate": 211 - len(set(number_pairs(211, 0)))}
    assert train.dropped == duplicates and train.kept == 211 - duplicates["duplicate"]
    repeated = 13 - 5 - (len(found) - train.kept)
    assert more.dropped == {
        "NUL character": 1, "duplicate": repeated, "empty side": 1, "invalid UTF-8": 1,
        "too long": 1, "lengths too unequal": 1,
    }  # fmt: skip
    assert more.lines == 13 == more.kept + sum(more.dropped.values())
    assert (valid.split, valid.text, valid.lines) == ("valid", "numbers/valid", 13)


@pytest.mark.parametrize(
    ("source", "target", "fate"),
    [
        (b"one", b" \t ", "empty side"),
        ("\u2028".encode(), b"eins", "empty side"),
        (b"one", b"\xed\xa0\x80", "invalid UTF-8"),  # half a surrogate pair
        (b"one " * 20_000, b"eins", "overlong line"),
        (b"one " * 10_000, b"eins", "kept"),
    ],
)
def test_the_fate_of_a_pair(source: bytes, target: bytes, fate: str) -> None:
    text, found = clean_pair(source, target)
    assert found == fate and bool(text) == (fate == "kept")


def cleaned(folder: Path, source: bytes | None = None) -> CleanText:
    """The clean text of 101 pairs, of which the source may be another."""
    folder.mkdir()
    write_pairs(folder, "text", number_pairs(101, seed=0))
    if source is not None:
        (folder / "text.en").write_bytes(source)
    texts = [("text", folder / "text.en", folder / "text.de")]
    return clean(texts, folder / "clean", drop_duplicates=False)


def test_up_to_a_tenth_of_each_text_may_be_undecodable(tmp_path: Path) -> None:
    assert cleaned(tmp_path / "one", b"\xfc\n" * 10 + b"one\n" * 91).pairs == 91
    message = r"text\.en or .*text\.de: 11 of 101 lines are not UTF-8; convert the file"
    with pytest.raises(InputError, match=message):
        cleaned(tmp_path / "two", b"\xfc\n" * 11 + b"one\n" * 90)


def test_a_sample_is_spread_over_the_text_and_deterministic(tmp_path: Path) -> None:
    text = cleaned(tmp_path / "texts")
    pairs = [f"{s}\n{t}" for s, t in number_pairs(101, 0)]
    for most in (1, 7, 100):
        lines = list(text.sample(most))
        assert lines == list(text.sample(most))
        drawn = ["\n".join(lines[i : i + 2]) for i in range(0, len(lines), 2)]
        bounds = np.arange(most + 1) * 101 // most
        for pair, low, high in zip(drawn, bounds[:-1], bounds[1:], strict=True):
            assert pair in pairs[low:high]
    assert list(text.sample(101)) == list(text.sample(1_009)) == "\n".join(pairs).split("\n")


ALL_WORDS = " ".join(ENGLISH + GERMAN).encode()


@pytest.mark.parametrize(
    ("files", "content", "message"),
    [
        ("train.en train.de", b"\n\n", "hold no usable pair: they are empty, or UTF-16"),
        ("train.en train.de", "ab\n".encode("utf-16-be"), "they are empty, or UTF-16"),
        ("test.en test.de", b"", r"test\.en and .*test\.de are empty"),
        ("train.en train.de", ALL_WORDS, r"train\.en: no pair is left .* \(1 too long\)"),
        ("train.de", b"a\nb\n", r"train\.en has 211 .*\.de has 2"),
        ("valid.de", b"a\nb\n", r"valid\.en has 13 lines but .*\.de has 2"),
        ("valid.de", b"ja\n" * 12 + b"f\xfcnf", r"valid\.de, line 13 is not U"),
        (
            "valid.en valid.de",
            b"one " * 3_000,
            r"valid\.de: each line has more than 2,048 w.*; spl",
        ),
        ("train.en train.de", b"a b\n", "vocab_size 61 is more than the text allows"),
    ],
    ids=[
        "empty",
        "UTF-16",
        "no test",
        "too long",
        "train lines",
        "valid lines",
        "encoding",
        "endless",
        "vocabulary",
    ],
)
def test_unusable_text_is_named_and_leaves_nothing_behind(
    files: str, content: bytes, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    early = "each line" not in message and not files.startswith("train")
    if early:  # before the training text, which takes hours
        monkeypatch.setattr(prepare_module, "_train", lambda *_: pytest.fail("too early"))
    folder = write_corpus(tmp_path / "numbers")
    for name in files.split():
        (folder / name).write_bytes(content)
    with pytest.raises(InputError, match=message) as error:
        prepare(tiny(folder_corpus(folder), max_length=3, tokens_per_batch=3))
    assert "\n" not in str(error.value)
    assert prepared_folders() == []


def test_a_tree_that_cannot_be_scored_is_named(files_corpus: Corpus, tmp_path: Path) -> None:
    both = TextFile(location=str(path := tmp_path / "trees"))
    path.write_text("XX\n" + "(S XX )NP\n" * 210)
    for split in ("valid", "test"):
        trees = ParallelText(source=both, target=both)
        corpus = dataclasses.replace(files_corpus, task="parsing", **{split: trees})
        with pytest.raises(InputError, match=r"trees, line 2: a tree has a bracket \)NP that"):
            prepare(tiny(corpus))


def test_what_a_corpus_takes_is_announced_before_anything_is_fetched(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=2**20))
    with pytest.raises(InputError, match=r"wmt14_en_de needs \d\.\d GB in .* 1\.0 MB are free"):
        prepare_module._announce(WMT14_EN_DE)
    (line,) = capsys.readouterr().err.splitlines()
    said = "wmt14_en_de, about 4,508,785 pairs: 1.7 GB to fetch from 3 addresses, about "
    assert line.startswith(said)


def test_only_large_corpora_are_announced_and_only_once(
    files_corpus: Corpus, capsys: pytest.CaptureFixture[str]
) -> None:
    for pairs in (None, 99_999, 1_000_003):
        corpus = dataclasses.replace(files_corpus, name=f"of_{pairs}", pairs=pairs)
        for _ in range(2):
            prepare(tiny(corpus))
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("of_1000003, about 1,000,003 pairs: 0.0 MB to fetch from 0 addresses")


def test_a_flipped_bit_or_a_missing_file_is_noticed(tiny_config: Config) -> None:
    directory = prepare(tiny_config).directory
    files = files_in(directory)
    for name, content in files.items():
        flip_a_bit(directory / name, -9, keep_date=True)
        with pytest.raises(InputError, match=f"{directory} is damaged: {name} changed"):
            prepare(tiny_config)
        (directory / name).unlink()
        with pytest.raises(InputError, match=f"{directory} is damaged: {name} changed"):
            prepare(tiny_config)
        (directory / name).write_bytes(content)
    assert files_in(prepare(tiny_config).directory) == files


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


def test_changed_text_is_not_prepared(tiny_config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    noted = prepare(tiny_config).manifest
    changed = Path(tiny_config.data.corpus.train[0].target.location)
    changed.write_text(changed.read_text().replace("eins", "EINS", 1))
    monkeypatch.setattr(prepare_module, "_prepare", lambda *_: pytest.fail("prepared it"))
    with pytest.raises(InputError, match=f"not what this run began with: {changed} changed;"):
        prepare(tiny_config, expected=noted)


def test_the_prepared_copy_of_a_text_that_is_gone_serves_the_run_that_recorded_it(
    tiny_config: Config,
) -> None:
    corpus = prepare(tiny_config)
    gone = Path(tiny_config.data.corpus.train[0].target.location)
    gone.rename(gone.with_name("elsewhere"))
    assert prepare(tiny_config, expected=corpus.manifest) == corpus
    assert not any(problem for _, problem in verify(tiny_config, corpus.manifest))
    with pytest.raises(InputError, match=f"{gone} does not exist"):
        prepare(tiny_config)
    shutil.rmtree(corpus.directory)
    with pytest.raises(InputError, match=f"{gone} does not exist"):
        prepare(tiny_config, expected=corpus.manifest)


def test_other_prepared_files_of_the_same_text_are_refused(tiny_config: Config) -> None:
    corpus = prepare(tiny_config)
    other = prepared_module.Checksum(bytes=1, sha256="0" * 64)
    noted = dataclasses.replace(
        corpus.manifest, files=corpus.manifest.files | {VOCABULARY_FILE: other}, digest="another"
    )
    with pytest.raises(InputError, match=r"began with: vocabulary\.model changed"):
        prepare(tiny_config, expected=noted)
    problems = {path: problem for path, problem in verify(tiny_config, noted) if problem}
    assert problems == {corpus.vocabulary_file: "changed since the run began"}


@pytest.fixture
def downloaded_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """The training text is in an archive and one validation file is a download, from a mirror."""
    folder = write_corpus(tmp_path / "numbers")
    host = tmp_path / "mirror" / "host"
    host.mkdir(parents=True)
    train = {f"x/train.{side}": (folder / f"train.{side}").read_bytes() for side in ("en", "de")}
    (host / "a.tgz").write_bytes(archive(train))
    (host / "valid.en").write_bytes((folder / "valid.en").read_bytes())
    monkeypatch.setenv("DATA_MIRROR", str(host.parent))

    def download(name: str, member: str | None = None) -> TextFile:
        sha256 = sha256_of(host / name)
        return TextFile(location=f"https://host/{name}", sha256=sha256, member=member)

    corpus = folder_corpus(folder)
    source, target = (download("a.tgz", member) for member in train)
    text = ParallelText(source=source, target=target)
    valid = dataclasses.replace(corpus.valid, source=download("valid.en"))
    return tiny(dataclasses.replace(corpus, train=(text,), valid=valid))


def test_verify_reads_every_byte_whatever_size_and_date_say(downloaded_config: Config) -> None:
    with pytest.raises(InputError, match="numbers is not prepared as it is now"):
        list(verify(downloaded_config))
    noted = prepare(downloaded_config).manifest
    checked = dict(verify(downloaded_config, noted))
    assert set(checked.values()) == {""} and len(checked) == 2 + len(noted.files)
    for name in (
        "downloads/host/a.tgz", "downloads/host/valid.en",
        "prepared/numbers-*/train/tokens.u16", "prepared/numbers-*/manifest.json",
    ):  # fmt: skip
        (path,) = cache_directory().glob(name)
        flip_a_bit(path, keep_date=True)
        problems = [each for each, problem in verify(downloaded_config, noted) if problem]
        assert problems == [path]
        flip_a_bit(path, keep_date=True)


def test_a_signal_while_the_vocabulary_is_learnt_is_no_error_of_sentencepiece(
    tmp_path: Path,
) -> None:
    class Word(str):
        def __format__(self, spec: str) -> str:
            raise SystemExit(75)  # as a handler does, wherever the signal comes

    class Line(str):
        def split(self, sep: Any = None, maxsplit: Any = -1) -> list[str]:
            return [Word("a")]

    with pytest.raises(SystemExit):
        train_vocabulary([Line("a")], 8, tmp_path / "vocabulary.model")
    assert not any(tmp_path.iterdir())
