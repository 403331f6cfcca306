"""From files to a prepared folder: once, complete or not at all."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import loky
import pytest

from tests.samples import ENGLISH, GERMAN, number_pairs, tiny, write_corpus, write_pairs
from transformer.config import Config, override, to_dict
from transformer.data.corpora.folders import files_corpus, folder_corpus
from transformer.data.fetch.cache import cache_directory
from transformer.data.prepare import clean, encode
from transformer.data.prepare import prepare as prepare_module
from transformer.data.prepare.prepare import prepare, prepared_directory, source_contents
from transformer.data.prepared import TextReport
from transformer.errors import InputError

ROOT = Path(__file__).parents[3]


def prepared_folders() -> list[str]:
    folder = cache_directory() / "prepared"
    return [path.name for path in folder.iterdir() if path.is_dir()]


def config_of(folder: Path, **changes: object) -> Config:
    return tiny(folder_corpus(folder), **changes)


def test_each_split_is_read_back(tiny_config: Config) -> None:
    corpus = prepare(tiny_config)
    vocabulary = corpus.vocabulary()
    for seed, (split, count) in enumerate({"train": 211, "valid": 13, "test": 11}.items()):
        store = corpus.store(split)
        encoded = [[side.tolist() for side in store[i]] for i in range(len(store))]
        pairs = [tuple(vocabulary.decode(pair)) for pair in encoded]
        assert pairs == number_pairs(count, seed)
        assert len(vocabulary) == tiny_config.model.vocab_size
    assert corpus.text("valid") == tuple(map(list, zip(*number_pairs(13, 1), strict=True)))
    assert corpus.report() == [
        TextReport(split="train", text="numbers/train", lines=211, kept=211),
        TextReport(split="valid", text="numbers/valid", lines=13, kept=13),
        TextReport(split="test", text="numbers/test", lines=11, kept=11),
    ]
    store = {"lengths.u32", "starts.u64", "tokens.u16"}
    assert set(files_in(corpus.directory)) == {
        "vocabulary.model", "report.json", "manifest.json",
        *(f"train/{name}" for name in (*store, "by_length.u32", "buckets.i64")),
        *(f"{split}/{name}" for split in ("valid", "test")
          for name in (*store, "source.txt", "reference.txt")),
    }  # fmt: skip


def files_in(directory: Path) -> dict[str, bytes]:
    files = [path for path in directory.rglob("*") if path.is_file()]
    return {str(path.relative_to(directory)): path.read_bytes() for path in files}


def test_a_second_call_does_nothing(tiny_config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    first = prepare(tiny_config)
    monkeypatch.setattr(prepare_module, "_prepare", lambda *_: pytest.fail("did it again"))
    assert prepare(tiny_config) == first
    # settings that do not affect the contents use the same folder
    assert prepare(override(tiny_config, tokens_per_batch=211, seed=7, d_ff=5)) == first


def test_settings_that_change_the_contents_change_the_folder(tmp_path: Path) -> None:
    config = config_of(write_corpus(tmp_path / "numbers"))

    def folder(**changes: object) -> Path:
        contents = source_contents(config.data.corpus)
        return prepared_directory(override(config, **changes), contents)

    changed: list[dict[str, object]] = [
        {"vocab_size": 67}, {"max_length": 5}, {"max_length_ratio": 1.5}, {"drop_duplicates": True}
    ]  # fmt: skip
    folders = {folder(), *(folder(**each) for each in changed)}
    (tmp_path / "numbers" / "valid.de").write_text("null\n" * 13)
    assert len(folders | {folder()}) == 6


# For each operation on files: an empty cache, a process that is killed before it, and a second one.
KILL_AND_PREPARE = """
import json, os, signal, sys
from transformer.config import Config, from_dict
from transformer.data.prepare import clean
from transformer.data.prepare.prepare import prepare

os.fsync = lambda file: None  # takes most of the time, and is for power cuts
clean.CHUNK_PAIRS = 23
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
    number += 1
    os.environ["DATA_CACHE"] = f"{sys.argv[2]}/{number}"
    if (child := os.fork()) == 0:
        left = number
        prepare(config, workers=1)
        os._exit(0)
    killed = os.WIFSIGNALED(os.waitpid(child, 0)[1])
    print(prepare(config, workers=1).directory)
"""


def test_after_a_kill_at_any_moment_the_next_start_gives_the_same_bytes(
    tiny_config: Config, tmp_path: Path
) -> None:
    undisturbed = files_in(prepare(tiny_config).directory)
    arguments = [json.dumps(to_dict(tiny_config)), str(tmp_path)]
    output = subprocess.run(
        [sys.executable, "-c", KILL_AND_PREPARE, *arguments],
        cwd=ROOT, capture_output=True, text=True, timeout=240, check=True,
    ).stdout.splitlines()  # fmt: skip
    assert len(output) > 30
    for directory in map(Path, output):
        assert files_in(directory) == undisturbed
        assert [path for path in directory.parent.iterdir() if path.is_dir()] == [directory]


# The largest file that may be written grows, so that each stage is the first to fail once.
FILL_AND_TELL = """
import json, os, resource, sys
from transformer.config import Config, from_dict
from transformer.data.prepare import clean
from transformer.data.prepare.prepare import prepare

clean.CHUNK_PAIRS = 23
config = from_dict(Config, json.loads(sys.argv[1]))
for limit in map(int, sys.argv[2:]):
    if os.fork() == 0:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        try:
            prepare(config, workers=1)
        except OSError as error:
            print(error.errno, str(error).partition("make room, or set DATA_CACHE")[1], flush=True)
        os._exit(0)
    os.wait()
print(prepare(config, workers=1).directory)
"""


def test_after_a_full_disk_in_any_stage_the_next_start_gives_the_same_bytes(
    tiny_config: Config, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    directory = prepare(tiny_config).directory
    undisturbed = files_in(directory)
    sizes = sorted({len(content) for content in undisturbed.values()})
    monkeypatch.setenv("DATA_CACHE", str(tmp_path / "cache"))
    limits = [str(size - 1) for size in sizes]
    lines = subprocess.run(
        [sys.executable, "-c", FILL_AND_TELL, json.dumps(to_dict(tiny_config)), *limits],
        cwd=ROOT, capture_output=True, text=True, timeout=120, check=True,
    ).stdout.splitlines()  # fmt: skip
    assert lines[:-1] == ["27 make room, or set DATA_CACHE"] * len(limits)
    assert files_in(Path(lines[-1])) == undisturbed


def test_finished_stages_are_not_repeated(
    tiny_config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clean, "CHUNK_PAIRS", 23)
    with monkeypatch.context() as broken:
        broken.setattr(prepare_module, "_scored", lambda *args: [][0])
        with pytest.raises(IndexError):
            prepare(tiny_config)
    for module, name in ((clean, "clean_lines"), (encode, "_encode")):
        monkeypatch.setattr(module, name, lambda *args, **kwargs: pytest.fail("did it again"))
    monkeypatch.setattr(prepare_module, "train_vocabulary", lambda *args: pytest.fail("again"))
    assert prepare(tiny_config).report()[0].kept == 211


def test_the_folder_does_not_depend_on_the_number_of_processes(
    tiny_config: Config, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    alone = files_in(prepare(tiny_config, workers=1).directory)
    monkeypatch.setenv("DATA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(clean, "CHUNK_PAIRS", 11)
    monkeypatch.setattr(prepare_module, "_LONG_TEXT", 1)
    begun: list[int] = []
    pool = loky.ProcessPoolExecutor

    def counted(workers: int, **settings: Any) -> loky.ProcessPoolExecutor:
        begun.append(workers)
        return pool(workers, **settings)

    monkeypatch.setattr(loky, "ProcessPoolExecutor", counted)
    assert files_in(prepare(tiny_config, workers=2).directory) == alone
    assert begun == [2, 1, 2], "cleaning, the vocabulary, encoding"


def test_texts_are_read_in_order_and_every_line_is_kept_or_dropped_for_a_reason(
    tmp_path: Path,
) -> None:
    folder = write_corpus(tmp_path / "numbers")
    write_pairs(folder, "empty", [("one", "")])
    write_pairs(folder, "more", [*number_pairs(5, 29), number_pairs(211, 0)[3], ("nine", "neun")])
    with (folder / "more.en").open("ab") as en, (folder / "more.de").open("ab") as de:
        en.write(b"nine\none\0\n\none\n" + b"one " * 97 + b"\n")
        de.write(b"neun\neins\neins\n\xfc\n" + b"eins " * 97 + b"\n")

    def pair(split: str) -> tuple[Path, Path]:
        return folder / f"{split}.en", folder / f"{split}.de"

    corpus = files_corpus(
        "three",
        languages=("en", "de"),
        train=[pair("empty"), pair("train"), pair("more")],
        valid=pair("valid"),
    )
    prepared = prepare(tiny(corpus, drop_duplicates=True))
    vocabulary, store = prepared.vocabulary(), prepared.store("train")
    found = [vocabulary.decode([store[i][0].tolist()])[0] for i in range(len(store))]
    read = [*number_pairs(211, 0), *number_pairs(5, 29), ("nine", "neun")]
    assert found == [source for source, _ in dict.fromkeys(read)]
    assert not prepared.has("test") and prepared.has("valid")
    empty, train, more, valid = prepared.report()
    assert empty == TextReport(
        split="train", text="numbers/empty", lines=1, kept=0, dropped={"empty side": 1}
    )
    assert (train.text, train.lines) == ("numbers/train", 211)
    duplicates = {"duplicate": 211 - len(set(number_pairs(211, 0)))}
    assert train.dropped == duplicates and train.kept == 211 - duplicates["duplicate"]
    repeated = 12 - 4 - (len(found) - train.kept)
    assert more.dropped == {
        "NUL character": 1, "duplicate": repeated, "empty side": 1, "invalid UTF-8": 1,
        "too long": 1,
    }  # fmt: skip
    assert more.lines == 12 == more.kept + sum(more.dropped.values())
    assert (valid.split, valid.text, valid.lines) == ("valid", "numbers/valid", 13)


def write(split: str, content: bytes, languages: tuple[str, ...] = ("en", "de")):
    def change(folder: Path) -> None:
        for language in languages:
            (folder / f"{split}.{language}").write_bytes(content)

    return change


ALL_WORDS = " ".join(ENGLISH + GERMAN).encode()
REFUSED: dict[str, tuple[Callable[[Path], None], str]] = {
    "no line": (write("train", b""), "hold no usable pair: the corpus is empty"),
    "empty lines": (write("train", b"\n\n"), "hold no usable pair: the corpus is empty"),
    "nothing to score": (write("test", b""), r"test\.en and .*test\.de are empty"),
    "too long": (write("train", ALL_WORDS), r"train\.en: no pair is left .* \(1 too long\)"),
    "not aligned": (
        write("train", b"a\nb\n", ("de",)),
        r"train\.en has 211 lines but .*\.de has 2",
    ),
    "nor scored": (write("valid", b"a\nb\n", ("de",)), r"valid\.en has 13 lines but .*\.de has 2"),
    "encoding": (
        write("valid", b"ja\n" * 12 + b"f\xfcnf", ("de",)),
        r"valid\.de, line 13 is not U",
    ),
    "vocabulary": (write("train", b"a b\n"), "vocab_size 61 is more than the text allows"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_unusable_text_is_named_and_leaves_nothing_behind(name: str, tmp_path: Path) -> None:
    change, message = REFUSED[name]
    folder = write_corpus(tmp_path / "numbers")
    change(folder)
    with pytest.raises(InputError, match=message) as error:
        prepare(config_of(folder, max_length=3, tokens_per_batch=3))
    assert "\n" not in str(error.value)
    assert prepared_folders() == []


PREPARE_AND_TELL = """
import json, sys, time
from transformer.config import Config, from_dict
from transformer.data.prepare import prepare as module

work = module._prepare
def slowly(*args):
    print("working", flush=True)
    time.sleep(0.5)
    work(*args)

module._prepare = slowly
print(module.prepare(from_dict(Config, json.loads(sys.argv[1]))).report()[0].kept)
"""


def test_one_of_several_concurrent_processes_does_the_work(tiny_config: Config) -> None:
    arguments = [sys.executable, "-c", PREPARE_AND_TELL, json.dumps(to_dict(tiny_config))]
    processes = [
        subprocess.Popen(arguments, cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    outputs = [process.communicate(timeout=120)[0].split() for process in processes]
    assert sorted(outputs) == [["211"], ["working", "211"]]
    assert len(prepared_folders()) == 1
