"""Runs are scored and translate, as users ask; a parser scores and writes trees."""

from __future__ import annotations

import io
import os
import pty
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from experiments.evaluate.significance import compare_runs
from experiments.evaluate.stream import translate_stream
from experiments.evaluate.trained import load_trained, text_of_split
from experiments.evaluate.translator import Text
from experiments.records.experiment import Experiment
from experiments.records.outputs import read_samples, step_checkpoints
from experiments.records.result import Result, load_result
from experiments.records.run import read_run
from experiments.records.score_lines import result_lines
from tests.experiments.conftest import Command
from tests.experiments.samples import result_of, tiny_experiment
from tests.samples import tiny, write_wsj
from tests.test_readme import snippet
from transformer.config import override
from transformer.data.prepare.prepare import prepare
from transformer.errors import InputError
from transformer.evaluation.bleu import bleu, chrf, sentence_chrf
from transformer.evaluation.perplexity import perplexity, translate
from transformer.parsing.treebanks import penn_treebank
from transformer.parsing.trees import linearise, read_trees, words

CPU = torch.device("cpu")


def test_a_checkpoint_that_training_removes_meanwhile_is_named(
    finished: Path, monkeypatch: pytest.MonkeyPatch, call: Command
):
    removed = finished / "checkpoints" / "step-00000020.ckpt"
    monkeypatch.setattr("experiments.evaluate.trained.choose_checkpoints", lambda *_: [removed])
    (line,) = call("evaluate", finished).lines
    assert line.endswith(f"{removed} has just been removed: try again")


@pytest.mark.slow
def test_both_means_are_scored_and_the_translations_of_one_kept(folder: Path, tmp_path: Path):
    experiment = tiny_experiment(
        folder, average_checkpoints=1, also_average=3, max_steps=10, checkpoint_every_steps=2
    )
    result = result_of(experiment, tmp_path)
    assert [step for step, _ in step_checkpoints(tmp_path)] == [6, 8, 10]
    assert result == load_result(tmp_path)
    sources, references = prepare(experiment.config).text("valid")
    trained = load_trained(tmp_path, 3, device=CPU)
    model, vocabulary = trained.model, trained.vocabulary
    assert result.averaged is not None and result.averaged.checkpoints == 3
    expected = perplexity(model, vocabulary, sources, references).per_token
    assert result.averaged.perplexity == expected != result.perplexity
    translations = translate(model, vocabulary, sources, experiment.config.decoding)
    assert result.averaged.bleu == bleu(translations, references).score
    assert result.averaged.chrf == chrf(translations, references).score
    kept = (tmp_path / "valid.hypotheses.txt").read_text("utf-8").splitlines()
    assert result.chrf == chrf(kept, references).score
    tested = (tmp_path / "test.hypotheses.txt").read_text("utf-8").splitlines()
    assert result.test_chrf == chrf(tested, prepare(experiment.config).text("test")[1]).score
    assert result_lines(result)[-1] == f"chrF: {result.chrf_signature}"
    files = sorted(path.name for path in tmp_path.glob("*.hypotheses.txt"))
    assert files == ["test.hypotheses.txt", "valid.hypotheses.txt"]
    assert "(mean of 3 checkpoints)" in result_lines(result)[2]


@pytest.mark.slow
def test_several_references_are_all_scored_with(
    folder: Path, tmp_path: Path, call: Command
) -> None:
    """The second one is what the model wrote itself."""
    corpus = shutil.copytree(folder, tmp_path / "numbers")
    first = result_of(tiny_experiment(corpus, max_steps=3), tmp_path / "one", log="none")
    written = (tmp_path / "one/valid.hypotheses.txt").read_text("utf-8")
    (corpus / "valid.de.1").write_text(written, encoding="utf-8")
    result = result_of(tiny_experiment(corpus, max_steps=3), tmp_path / "two", log="none")
    assert (tmp_path / "two/valid.hypotheses.txt").read_text("utf-8") == written
    assert result.perplexity == first.perplexity
    lines = written.splitlines()
    _, references = prepare(tiny_experiment(folder).config).text("valid")
    assert result.chrf == chrf(lines, references, [lines]).score
    assert first.chrf is not None and result.chrf is not None
    assert first.chrf < 10 < 50 < result.chrf
    assert result.test_chrf == first.test_chrf
    for signature in (result.bleu_signature, result.tokenised_bleu_signature):
        assert signature is not None and signature.startswith("nrefs:2|")
    ended = call("evaluate", tmp_path / "two")
    assert f"chrF {result.chrf:.2f} " in ended.stdout and ended.stdout.count("nrefs:2|") == 3
    assert "chrF: nrefs:1|" in call("evaluate", tmp_path / "two", "--split", "test").stdout
    found = compare_runs(read_run(tmp_path / "two"), read_run(tmp_path / "two"), "valid")
    assert found.signature.startswith("nrefs:2|") and found.first.bleu == result.bleu


def test_the_same_checkpoints_are_not_scored_twice(folder: Path, tmp_path: Path):
    steps = {"also_average": 5, "max_steps": 4, "checkpoint_every_steps": 2}
    result = result_of(tiny_experiment(folder, ("valid",), **steps), tmp_path)
    assert (result.averaged_checkpoints, result.averaged) == (2, None)


@pytest.mark.parametrize("options", ["--split valid", "--split test", "--source EN --reference DE"])
def test_evaluate_prints_the_scores_of_the_result(
    options: str, finished: Path, folder: Path, tmp_path: Path, call: Command
):
    output = tmp_path / "hypotheses.txt"
    files = {"EN": str(folder / "test.en"), "DE": str(folder / "test.de")}
    words = [files.get(word, word) for word in options.split()]
    ended = call("evaluate", finished, *words, "--output", output)
    scores, *signatures, settings = ended.stdout.splitlines()
    result = load_result(finished)
    assert result is not None and ended.code == 0
    _, valid, test, *expected = result_lines(result)
    split, line = ("valid", valid) if "valid" in options else ("test", test)
    line = line.replace("test", "text") if "EN" in options else line
    assert scores.startswith(f"{line}, per character ")
    assert signatures == expected
    assert settings.endswith(" lines, beam 4, alpha 0.6, 2 checkpoints averaged")
    assert output.read_bytes() == (finished / f"{split}.hypotheses.txt").read_bytes()


def test_a_set_of_sacrebleu_is_found_by_three_letter_codes(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    given = tmp_path / "sacrebleu" / "wmt13"
    given.mkdir(parents=True)
    for name, line in (("src", "one"), ("ref", "eins")):
        (given / f"wmt13.en-de.{name}").write_text(f"{line}\n")
    monkeypatch.setenv("SACREBLEU", str(given.parent))
    experiment = tiny_experiment(folder)
    languages = {"source_language": "eng_Latn", "target_language": "deu"}
    corpus = replace(experiment.config.data.corpus, **languages)
    experiment = replace(experiment, config=override(experiment.config, corpus=corpus))
    assert text_of_split(experiment, "wmt13") == Text(["one"], ["eins"])


def test_damaged_checkpoints_are_not_evaluated(copy: Path, call: Command):
    (_, first), (_, last) = step_checkpoints(copy)
    last.write_bytes(b"")
    assert call("evaluate", copy, "--average", "1").code == 0
    first.write_bytes(first.read_bytes()[:1_000])
    ended = call("evaluate", copy)
    assert ended.code == 2
    assert ended.stderr.endswith(f"{copy} has no checkpoint that can be read: train it first\n")


def _translate(directory: Path, text: bytes) -> list[str]:
    return list(translate_stream(directory, io.BytesIO(text)))


def test_samples_are_the_best_and_the_worst_translations(finished: Path, experiment: Experiment):
    samples = read_samples(finished, "valid")
    translations = (finished / "valid.hypotheses.txt").read_text("utf-8").splitlines()
    sources, references = prepare(experiment.config).text("valid")
    scores = sorted(sentence_chrf(translations, references), reverse=True)
    assert [x.chrf for x in samples] == [round(x, 1) for x in (*scores[:5], *scores[-5:])]
    lines = set(zip(sources, references, translations, strict=True))
    assert {(x.source, x.reference, x.translation) for x in samples} <= lines


@pytest.mark.slow
def test_every_line_is_translated_in_its_place(
    finished: Path, call: Command, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("experiments.evaluate.stream._LINES_AT_ONCE", 2)
    sources = ["one two", "", "three", "  ", "four\u2028five\x85six\x0cseven", "one two\r"]
    text = "".join(f"{line}\n" for line in sources)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    ended = call("translate", finished)
    assert (ended.code, ended.stderr) == (0, "")
    lines = ended.stdout.split("\n")
    assert lines.pop() == ""
    assert lines[1] == lines[3] == ""
    alone = [_translate(finished, f"{source}\n".encode()) for source in sources]
    assert [[line] for line in lines] == alone


def test_a_line_that_is_too_long_stays_empty_and_the_others_are_translated(finished: Path):
    words, endless = b"seven " * 50_000, b"x" * 2**20
    lines = [b"one two", b"one " * 3_000, b"three", words, endless, b"one two"]
    with pytest.warns(UserWarning) as warned:
        found = _translate(finished, b"\n".join(lines))
    first, second = _translate(finished, b"one two\nthree\n")
    assert found == [first, "", second, "", "", first]
    two, four, five = sorted(str(warning.message) for warning in warned)
    assert two.startswith("line 2 has ") and two.endswith(" 2,048: left empty")
    assert four == "line 4 has more than 65,536 bytes: left empty"
    assert five == "line 5 has more than 65,536 bytes: left empty"


@pytest.mark.parametrize("channel", [pty.openpty, lambda: os.pipe()[::-1]], ids=["tty", "pipe"])
def test_a_line_is_translated_as_soon_as_it_is_there(
    channel: Callable[[], tuple[int, int]], finished: Path
):
    writing, reading = channel()
    with os.fdopen(reading, "rb") as stream:
        found = translate_stream(finished, stream)
        for lines in (b"one two\n", b"three\nfour\n"):
            os.write(writing, lines)
            assert [next(found) for _ in lines.splitlines()] == _translate(finished, lines)
        os.close(writing)


def test_no_lines_are_translated_to_none_and_only_utf8_is_accepted(finished: Path):
    assert _translate(finished, b"") == []  # tests/data/test_text.py has the ends of lines
    with pytest.raises(InputError, match="standard input, line 3 is not UTF-8"):
        _translate(finished, b"one\ntwo\nth\xe9\nfour\n")


def test_the_documented_lines_load_a_run_in_python(
    finished: Path, capsys: pytest.CaptureFixture[str]
):
    code = snippet("load_trained").replace("runs/multi30k-seed1", str(finished))
    exec(code.replace("A dog runs.", "one two"), {})
    assert capsys.readouterr().out == f"{_translate(finished, b'one two')}\n"


@pytest.fixture(scope="module")
def parser(shared_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    """A parser of two kinds of sentences, trained for some seconds."""
    folder = tmp_path_factory.mktemp("treebank")
    corpus = penn_treebank(write_wsj(folder / "wsj"))
    schedule = {"max_steps": 140, "warmup_steps": 40, "learning_rate_factor": 1.0}
    config = tiny(corpus, vocab_size=45, num_layers=1, **schedule)
    experiment = Experiment(name="parser", description="a tiny parser", config=config)
    return folder / "run", result_of(experiment, folder / "run", log="none")


def test_a_trained_parser_has_its_scores_in_the_result_and_evaluate_prints_them(
    parser: tuple[Path, Result], call: Command
) -> None:
    directory, result = parser
    assert result.parses is not None and result.test_parses is not None
    assert result.parses.sentences == 4
    assert result.f1 == result.parses.f1 > result.parses.baseline_f1
    assert (result.bleu, result.tokenised_bleu, result.bleu_signature) == (None, None, None)
    assert (result.chrf, result.test_chrf, result.chrf_signature) == (None, None, None)
    _, valid, test = result_lines(result)
    assert valid.startswith(f"valid  F1 {result.f1:.2f} (precision ")
    assert test.startswith("test   F1 ")
    ended = call("evaluate", directory, "--split", "test")
    assert ended.code == 0 and ended.stdout.startswith(f"{test}, per character ")


@pytest.mark.slow
def test_a_parser_and_its_export_translate_each_sentence_into_a_tree(
    parser: tuple[Path, Result], tmp_path: Path, command: Command, call: Command
) -> None:
    directory, _ = parser
    text = "w2 f1\na b ( c ) .\n\n" + "w2 " * 50_000 + "\n" + "w2 " * 3_000
    text += "\nw2 f1\n( w2 f1\n"
    ended = command("experiments", "translate", directory, stdin=text.encode())
    trees = [next(read_trees(line, "output")) for line in ended.stdout.splitlines()[:2]]
    assert [words(tree) for tree in trees] == [["w2", "f1"], ["a", "b", "-LRB-", "c", "-RRB-", "."]]
    first, _, *others, last = ended.stdout.splitlines()
    assert others == ["(TOP)", "", "", first]
    four, five = sorted(ended.lines)
    assert "line 4 has more than 65,536 bytes: left empty" in four and "line 5 has" in five
    export = tmp_path / "export"
    exported = ("export", directory, "--format", "safetensors", "--output", export)
    assert call(*exported).code == 0
    again = command("experiments", "translate", export, stdin=text.encode())
    assert again.stdout == ended.stdout
    exported = ("export", directory, "--format", "ctranslate2", "--output", tmp_path / "other")
    assert call(*exported).code == 0
    refused = call("evaluate", tmp_path / "other")
    assert refused.code == 2 and "is a parser's, which may write only trees" in refused.stderr
    assert call("attention", directory, "( w2 f1").code == 0
    tree = linearise(next(read_trees(last, "output")))  # another one on each kind of machine
    assert tree.count("XX") == 3 and tree in (directory / "attention.html").read_text()
