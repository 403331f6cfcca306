"""The commands print, write and return what they promise."""

from __future__ import annotations

import errno
import io
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from experiments.catalog.find import EXPERIMENTS
from experiments.cli import PROGRAM
from experiments.command_line import Program
from experiments.records.experiment import Experiment, load_experiment
from experiments.records.progress import RunState
from experiments.records.result import load_result
from experiments.records.score_lines import result_lines
from experiments.run import Outcome
from tests.ablations.runs.processes import Finished
from tests.experiments.conftest import Command
from tests.samples import write_corpus
from tests.test_variant import GELU
from transformer.config import differences, to_dict
from transformer.files import write_json
from transformer.variant import FILES_VARIABLE

_SLOW = (
    "torch", "lightning", "wandb", "sentencepiece", "sacrebleu", "ctranslate2", "safetensors"
)  # fmt: skip


def test_list_prints_a_line_for_every_experiment(call: Command):
    ended = call("list")
    names = [line.split()[0] for line in ended.stdout.splitlines()]
    assert names == [*EXPERIMENTS, "files:FOLDER", "treebank:FOLDER", "FILE.py", "FILE.json"]
    assert ended.code == 0


@pytest.mark.slow
def test_help_and_list_import_nothing_slow():
    calls = [["list"], *([name, "--help"] for name in PROGRAM.commands)]
    script = (
        "import sys\n"
        "from experiments.cli import PROGRAM\n"
        f"for words in {calls}:\n"
        "    code = PROGRAM.run(words)\n"
        f"    slow = [name for name in {_SLOW} if name in sys.modules]\n"
        "    assert not code and not slow, (words, code, slow)\n"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr


def test_prepare_prints_what_it_read_and_dropped(tmp_path: Path, shared_cache: Path, call: Command):
    folder = write_corpus(tmp_path / "mine")
    for language, line in (("en", "\nzero\nnine\r\n"), ("de", "null\n \nneun\r\n")):
        with (folder / f"train.{language}").open("a", newline="") as file:
            file.write(line)
    for _ in range(2):
        ended = call("prepare", f"files:{folder}", "--vocab-size", "61")
        train, valid, test, where = ended.stdout.splitlines()
        assert train == "train mine/train: 214 lines read, 212 pairs kept, 2 dropped: empty side"
        assert valid == "valid mine/valid: 13 lines read, 13 pairs kept"
        assert test == "test mine/test: 11 lines read, 11 pairs kept"
        assert Path(where).is_relative_to(shared_cache)


def test_prepare_says_what_its_filters_leave_out(tmp_path: Path, call: Command):
    folder = write_corpus(tmp_path / "mine")
    for language, lines in (("en", "one\none\none two three\n"), ("de", "eins\neins\nacht\n")):
        with (folder / f"train.{language}").open("a") as file:
            file.write(lines)
    settings = "--set drop_duplicates=true --set max_length_ratio=2 --set max_length=23"
    words = (f"files:{folder}", "--like", "multi30k", *settings.split())
    ended = call("prepare", *words)
    assert "with the settings of multi30k: 42 word-pieces" in ended.stderr
    found = re.search(r"214 lines read, (\d+) pairs kept, (.*)\n", ended.stdout)
    assert found
    dropped = {x: int(n) for n, x in re.findall(r"(\d+) dropped: ([^,]+)", found[2])}
    filters = ("duplicate (drop_duplicates=true)", "lengths too unequal (max_length_ratio=2.0)")
    assert [*dropped] == [*filters, "too long (max_length=23)"]
    assert all(dropped.values()) and int(found[1]) + sum(dropped.values()) == 214
    assert call("verify", *words).stdout.endswith("files, all as they were\n")


@pytest.mark.slow
def test_train_prints_the_scores_and_the_directory(folder: Path, tmp_path: Path, call: Command):
    folder = shutil.copytree(folder, tmp_path / folder.name)
    options = "--vocab-size 61 --max-steps 2 --set dropout=0.3 --set max_extra_length=5 --seed 5"
    words = ("train", f"files:{folder}", "--directory", tmp_path, *options.split())
    ended = call(*words)
    result = load_result(tmp_path)
    assert result is not None and result.seed == 5
    lines = result_lines(result)
    assert ended.stdout.splitlines() == [*lines, str(tmp_path)]
    assert lines[0].startswith("2 steps in ") and lines[2].startswith("test   BLEU ")
    assert "|tok:moses-de|" in lines[4]
    (line,) = ended.lines
    sizes = "61 word-pieces, 3 layers of d_model 64, 1,600 steps of 600 tokens"
    assert f"211 pairs, 8,449 bytes of training text, with the settings of cldr: {sizes} (" in line
    assert load_experiment(tmp_path).config.model.dropout == 0.3
    assert call(*words) == Finished(0, ended.stdout, ended.stderr)
    (folder / "train.en").write_text("other\n")
    assert "train.en changed; restore it, or start a new run" in call(*words).stderr


@pytest.mark.slow
def test_a_rank_that_nobody_gave_is_ignored(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Command
):
    for name in ("RANK", "LOCAL_RANK", "NODE_RANK", "WORLD_SIZE", "SLURM_PROCID"):
        monkeypatch.setenv(name, "1")
    options = "--vocab-size 61 --max-steps 1 --set max_extra_length=1 --log none --directory"
    ended = call("train", f"files:{folder}", *options.split(), tmp_path)
    assert ended.code == 0 and ended.stdout.endswith(f"{tmp_path}\n")
    assert load_result(tmp_path) is not None


def test_a_field_that_is_set_becomes_part_of_the_name_and_the_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    runs: list[tuple[Experiment, Path]] = []

    def execute(experiment: Experiment, directory: Path, **_: object) -> Outcome:
        runs.append((experiment, directory))
        return Outcome(RunState.STOPPED)

    monkeypatch.setattr("experiments.run.execute", execute)
    settings = "training.max_steps=2 dropout=0.20 clip_norm=none schedule=inverse_sqrt"
    words = [word for setting in settings.split() for word in ("--set", setting)]
    options = ["--compile", "--checkpoint-minutes", "10"]
    assert PROGRAM.run(["train", "multi30k", "--seed", "5", *options, *words]) == 1
    ((experiment, directory),) = runs
    name = "multi30k-dropout=0.2-max_steps=2-schedule=inverse_sqrt-clip_norm=None"
    assert (experiment.name, directory) == (name, Path("runs") / f"{name}-seed5")
    PROGRAM.run(["train", "multi30k", "--no-compile"])
    assert runs.pop()[0].config.training.compile is False
    write_json(tmp_path / "of-a-row.json", to_dict(replace(experiment, name="table/row")))
    PROGRAM.run(["train", str(tmp_path / "of-a-row.json")])
    assert runs.pop()[1] == Path("runs/table-row-seed5")  # not in the table's own directory
    changes = differences(to_dict(EXPERIMENTS["multi30k"].config), to_dict(experiment.config))
    assert changes == [
        "model.dropout: 0.1 -> 0.2",
        "training.seed: 1 -> 5",
        "training.max_steps: 5400 -> 2",
        "training.schedule: 'linear' -> 'inverse_sqrt'",
        "training.clip_norm: 1.0 -> None",
        "training.compile: None -> True",
        "training.checkpoint_every_minutes: None -> 10.0",
    ]


# How a folder of text is spoiled: the content of some files, None for no file. More: tests/data.
SPOILED: dict[str, dict[str, bytes | None]] = {
    "train.de has 3": {"train.de": b"eins\nzwei\ndrei\n"},
    "valid.en, line 1 is not UTF-8": {"valid.en": b"caf\xe9\n", "valid.de": b"eins\n"},
    "they are empty, or UTF-16": {"train.en": b"", "train.de": b""},
    "train.en.gz": {"train.en": None, "train.en.gz": b"\x1f\x8b\x08\x00\x00\x00\x00\x00"},
}


@pytest.mark.parametrize("said", SPOILED)
def test_files_that_cannot_be_used_are_refused_in_one_line(
    said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Command
):
    folder = write_corpus(tmp_path / "mine")
    for name, content in SPOILED[said].items():
        if content is None:
            (folder / name).unlink()
        else:
            (folder / name).write_bytes(content)
    directory, cache = tmp_path / "run", tmp_path / "cache"
    monkeypatch.setenv("DATA_CACHE", str(cache))
    for words in (("prepare",), ("train", "--directory", directory)):
        ended = call(*words, f"files:{folder}", "--vocab-size", "61")
        assert ended.code == 2 and said in ended.lines[-1]
        assert ended.lines[-1].startswith("python -m experiments: error: ")
    assert not [p for p in cache.rglob("*") if p.is_file() and p.suffix != ".lock"]
    assert not (directory / "config.json").exists()


# Settings whose names are too long for that of a run.
MANY = " --set ".join(
    ["", "dropout=0.1", "learning_rate_factor=0.25", "label_smoothing=0.1", "warmup_steps=1000",
     "adam_epsilon=1e-8", "max_steps=100"]
)  # fmt: skip
REFUSED = [
    ("trian cldr", 'Unknown command "trian". Did you mean "train"?'),
    ("train", "parameter NAME requires an argument"),
    ("train multi30", "unknown experiment 'multi30': did you mean 'multi30k'?"),
    ("train files:FOLDER --like multi30", "unknown experiment 'multi30': did you mean 'multi30k'"),
    ("train cldr --like multi30k", "--like is for text of your own, such as files:FOLDER, not for"),
    ("train treebnk", "did you mean 'treebank:FOLDER'"),
    ("train treebank:", "treebank: needs a folder, as in treebank:treebank_3/parsed/mrg/wsj"),
    ("train treebank:nowhere", "nowhere holds no sections of the Penn Treebank"),
    ("train cldr --sed 1", "Unknown option: --sed. Did you mean --seed?"),
    ("train cldr --seed one", 'Invalid value for --seed: unable to convert "one" into int'),
    ("train cldr --seed 1.5", "Invalid value for --seed: 1.5 is not a whole number"),
    ("train cldr --seed 2e-1", "Invalid value for --seed: 2e-1 is not a whole number"),
    ("train cldr --max-steps 10.0", "Invalid value for --max-steps: 10.0 is not a whole number"),
    ("train cldr --directory=", "Invalid value for --directory: a path is empty"),
    ("train cldr --variant=", "Invalid value for --variant: a path is empty"),
    ("evaluate RUN --output=", "Invalid value for --output: a path is empty"),
    ("train cldr --seed -1", "seed is -1, but must be at least 0"),
    (f"train cldr --seed {2**64}", "seed is 18446744073709551616, but"),
    ("train cldr --max-steps 0", "max_steps is 0, but must be above 0"),
    ("train cldr --max-minutes nan", "max_minutes is nan, but must be above 0"),
    ("train cldr --devices 0", "devices is 0, but must be at least 1"),
    ("train cldr --accumulate 0", "accumulate is 0, but must be at least 1"),
    ("train cldr --accumulate 100000", "accumulate is 100000, but must be at least 1 and at most"),
    ("train cldr --devices 100001", "devices is 100001, but may be at most"),
    ("train cldr --set dropout", "--set dropout: write FIELD=VALUE, such as dropout=0.2"),
    ("train cldr --set dropot=0.2", "unknown setting 'dropot': did you mean 'dropout'?"),
    ("train cldr --set training.dropout=0", "'training.dropout': did you mean 'model.dropout'?"),
    ("train cldr --set modle.dropout=0.2", "'modle.dropout': did you mean 'model.dropout'?"),
    ("train cldr --set dropout=high", "dropout is 'high', but takes a number"),
    ("train cldr --set dropout=nan", "dropout is 'nan', but takes a number"),
    (f"train cldr --set dropout={10**400}", "000', but takes a number"),
    ("train cldr --set dropout=none", "dropout is 'none', but takes a number"),
    ("train cldr --set dropout=1.5", "dropout is 1.5, but must be at least 0 and below 1"),
    ("train cldr --set clip_norm=inf", "clip_norm is 'inf', but takes a number or none"),
    ("train cldr --set max_steps=1e3", "max_steps is '1e3', but takes a whole number"),
    ("train cldr --set drop_duplicates=1", "drop_duplicates is '1', but takes true or false"),
    ("train cldr --set schedule=step", "'step', but takes one of inverse_sqrt, linear, cosine"),
    ("train cldr --set seed=3", "--set takes no seed: give it as --seed"),
    ("train cldr --set corpus=cldr", "takes no corpus: give it as NAME, such as files:FOLDER"),
    (f"train cldr {MANY}", "the run's name longer by over 100 letters: give fewer, or declare"),
    ("train files:FOLDER --directory RUN", "run belongs to another configuration (model."),
    ("train cldr --directory /proc/x", "/proc/x cannot be made (No such file or directory)"),
    ("train cldr --directory FOLDER/train.en", "a file is in its place"),
    ("train cldr --directory FOLDER/train.en/deeper", "a file is in its place"),
    ("prepare qqq", "unknown experiment 'qqq': known: FILE.json, FILE.py, cldr, craft, craft"),
    ("prepare cldr --vocab-size 3", "vocab_size is 3, but must be at least 8"),
    ("prepare files:nowhere", "nowhere is not a folder"),
    (f"prepare files:{300 * 'x'}", "File name too long: 'xxx"),
    ("prepare files:", "files: needs a folder, as in files:my_corpus"),
    ("verify files:FOLDER --vocab-size 59", "is not prepared as it is now: prepare it first"),
    ("evaluate nowhere", "nowhere is not the directory of a run: it has no config.json"),
    ("evaluate RUN --split tset", "unknown split 'tset': did you mean 'test'?"),
    ("evaluate RUN --split train", "unknown split 'train': there are valid, test, and sets of"),
    ("verify runs/none", "runs/none is no experiment, and no run either: it has no config.json"),
    ("verify FOLDER", "numbers is no experiment, and no run either: it has no config.json"),
    ("verify RUN --set dropout=0.2", "an export, which records its settings: give no --like, --"),
    ("train RUN", "is the directory of a run: its experiment is"),
    ("evaluate RUN --average 3", "holds 2 of the 3 checkpoints to average"),
    ("evaluate RUN --length-penalty nan", "length_penalty is nan, but must be at least 0"),
    ("evaluate RUN --source FOLDER/test.en", "--source and --reference belong together"),
    ("evaluate RUN --source FOLDER/test.en --reference nowhere", "nowhere"),
    ("evaluate RUN --split test --source a --reference b", "--split is a set of the corpus"),
    ("evaluate RUN --source FOLDER/test.en --reference FOLDER/valid.de", "has 11 lines but"),
    ("evaluate RUN --output nowhere/file", "nowhere is not a folder"),
    ("evaluate RUN --output .", ". is a folder: --output takes a file"),
    (f"evaluate RUN --output {'x' * 300}", "File name too long"),
    ("translate nowhere", "nowhere is not the directory of a run: it has no config.json"),
    ("export RUN --format safetensors --quantization int8", "--quantization is for --format"),
    ("export RUN --format safetensors --check 3", "--check is for --format ctranslate2 and hf"),
    ("export RUN --format hf", "Marian's heads share d_model, but 3 do not divide 26"),
    ("export RUN --format ctranslate2 --check 0", "check is 0, but must be at least 1"),
    ("export RUN --format ctranslate2 --average 3", "holds 2 of the 3 checkpoints to average"),
    ("export RUN --format safetensors --output nowhere/x", "nowhere is not a folder"),
    ("export RUN --format safetensors --output FOLDER", "exists and is not an earlier export of"),
    ("attention RUN one --layer 3", "there is no layer 3: the model has layers 1 to 1"),
    ("attention RUN one --heads 1,4", "--heads is '1,4', but takes numbers such as 1,3"),
    ("attention RUN one --heads 1,x", "--heads is '1,x', but takes numbers such as 1,3"),
    ("attention RUN one --output a.jpg", "its name must end in .html, .svg, .pdf, .png"),
    ("attention RUN one --output nowhere/a.svg", "nowhere is not a folder: --output cannot be"),
]


@pytest.mark.parametrize(("arguments", "said"), REFUSED)
def test_wrong_arguments_are_refused_in_one_line_and_nothing_is_written(
    arguments: str,
    said: str,
    finished: Path,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    call: Command,
):
    before = sorted([*finished.rglob("*"), *folder.rglob("*")])
    words = arguments.replace("RUN", str(finished)).replace("FOLDER", str(folder)).split()
    monkeypatch.chdir(tmp_path)
    ended = call(*words)
    (line,) = (line for line in ended.lines if "--like, --vocab-size and --set" not in line)
    assert said in line and (ended.code, ended.stdout) == (2, "")
    assert sorted([*finished.rglob("*"), *folder.rglob("*")]) == before
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_too_large_a_vocabulary_is_refused_and_can_be_corrected(
    folder: Path, tmp_path: Path, call: Command
):
    words = ("train", f"files:{folder}", "--directory", tmp_path, "--max-steps", "1")
    line = call(*words, "--vocab-size", "4000").lines[-1]
    assert re.search(r"is more than the text allows: at most \d+ \(--vocab-size\)$", line)
    assert call(*words, "--set", "max_extra_length=5").code == 0  # by the amount of text


@pytest.mark.slow
def test_every_command_works_with_a_variants_file_as_it_was_and_says_which_without_it(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Command
):
    """The file lies outside the package."""
    mine, run, export = tmp_path / "mine.py", tmp_path / "run", tmp_path / "export"
    mine.write_text(GELU)

    def call_anew(*words: str | Path) -> Finished:
        # As in a new process, which knows no file yet.
        monkeypatch.setenv(FILES_VARIABLE, "")
        monkeypatch.setattr("transformer.variant._LOADED", {})
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"one two\n")))
        return call(*words)

    options = "--vocab-size 61 --max-steps 2 --set max_extra_length=2 --log none --directory"
    train = ("train", f"files:{folder}", "--set", f"model={mine}:LeakyTransformer")
    train += (*options.split(), run)
    assert call_anew(*train).code == 0
    assert (run / "result.json").is_file()
    for words in (
        ("evaluate", run),
        ("translate", run),
        ("attention", run, "one two", "--output", tmp_path / "a.html"),
        ("export", run, "--format", "safetensors", "--output", export),
        ("translate", export),
    ):
        ended = call_anew(*words)
        (line,) = ended.lines
        assert ended.code == 2
        assert "a class is in mine, which is not installed: add --variant" in line
        assert call_anew(*words, "--variant", mine).code == 0
    ended = call_anew("export", run, "--format", "ctranslate2", "--variant", mine)
    assert ended.code == 2 and "CTranslate2 has no LeakyTransformer" in ended.stderr
    (run / "result.json").unlink()
    mine.write_text(GELU.replace("SLOPE = 0.1", "SLOPE = 0.2"))
    ended = call_anew(*train)
    assert ended.code == 2 and "(source of LeakyTransformer: " in ended.stderr
    mine.write_text(GELU)
    assert call_anew(*train).code == 0


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (
            PermissionError(errno.EACCES, "denied", "a"),
            r"denied: 'a': check whose it is, or choose",
        ),
        (OSError(errno.EMFILE, "too many", "a"), r"too many: 'a'$"),
        (MemoryError(), "out of memory here: free some, or take a smaller model, batch or beam$"),
    ],
)
def test_what_the_machine_refuses_is_one_line(
    error: Exception, line: str, capsys: pytest.CaptureFixture[str]
):
    program = Program("experiments", "A program.")

    @program.command()
    def refused() -> None:  # pyright: ignore[reportUnusedFunction]
        """Fail."""
        raise error

    assert program.run(["refused"]) == 2
    (found,) = capsys.readouterr().err.splitlines()
    assert re.search(line, found)
