"""Exports as a user uses them; CTranslate2 gives our scores and the same greedy translations."""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, get_args

import ctranslate2
import pytest
import torch

from ablations.tables.scales import QUICK
from ablations.tables.table3 import TABLE
from experiments.export import export as export_module
from experiments.export.conversion import compare_greedy, write_ctranslate2_model
from experiments.export.export import _take_back
from tests.experiments.conftest import Command
from tests.samples import TINY_MODEL, flip_a_bit, random_sentences
from transformer.config import BOS_ID, EOS_ID, PAD_ID, DecodingConfig, ModelConfig, Positions
from transformer.data.vocabulary import Vocabulary
from transformer.decoding import decode_sentences
from transformer.model.encoder_decoder import Transformer

NUMBERS = re.compile(r"\d+\.\d+")
# Rows D differ from the base only in training.
ROWS = {
    row.name: TABLE.configure(row, QUICK).model
    for row in TABLE.rows
    if not row.name.startswith("D-")
}


def lively_model(config: ModelConfig, *, end: float = 0.5) -> Transformer:
    """A random model with hypotheses of many lengths; a larger ``end`` makes them shorter."""
    torch.manual_seed(0)
    model = Transformer(config).eval()
    with torch.no_grad():
        weight = model.embedding.weight[: config.vocab_size]
        for parameter in model.parameters():
            real = weight if parameter is model.embedding.weight else parameter
            real.add_(torch.randn_like(real), alpha=0.3)
        weight *= 1.5
        weight[[PAD_ID, BOS_ID]] *= 0.3
        bias = model.get_parameter(f"decoder.{config.num_layers - 1}.feed_forward_norm.norm.bias")
        bias.add_(weight[EOS_ID], alpha=end)
    return model


def some_sources(lengths: Sequence[int]) -> list[list[int]]:
    return [random_sentences([length])[0].tolist() for length in lengths]


def some_lines(vocabulary: Vocabulary, lengths: Sequence[int]) -> list[str]:
    """Lines of about so many word-pieces."""
    return [vocabulary.decode(source[:-1]) or "one" for source in some_sources(lengths)]


def check_same(
    model: Transformer, vocabulary: Vocabulary, folder: Path, lines: Sequence[str], extra: int = 7
) -> None:
    write_ctranslate2_model(model, vocabulary, folder)
    same = compare_greedy(model, vocabulary, folder, lines, extra)
    assert same == (len(lines), len(lines))


@pytest.mark.parametrize("name", ROWS)
def test_each_row_of_table_3_has_our_scores(
    name: str, vocabulary: Vocabulary, tmp_path: Path
) -> None:
    model = lively_model(dataclasses.replace(ROWS[name], vocab_size=61, max_positions=11))
    write_ctranslate2_model(model, vocabulary, tmp_path)
    pieces = vocabulary.pieces()
    sources, targets = (some_sources([2, 17, 5, 12]) for _ in range(2))
    texts = [[[pieces[i] for i in row[:-1]] for row in rows] for rows in (sources, targets)]
    translator = ctranslate2.Translator(str(tmp_path), inter_threads=1, intra_threads=1)
    for source, target, found in zip(
        sources, targets, translator.score_batch(*texts, max_input_length=0), strict=True
    ):
        with torch.inference_mode():
            logits = model(torch.tensor([source]), torch.tensor([[BOS_ID, *target[:-1]]]))[0]
            logits[:, [PAD_ID, BOS_ID]] = -torch.inf
        expected = logits.log_softmax(-1).gather(1, torch.tensor(target)[:, None])[:, 0]
        torch.testing.assert_close(torch.tensor(found.log_probs), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("positions", get_args(Positions))
def test_the_same_greedy_translations_as_ours(
    positions: Positions, vocabulary: Vocabulary, tmp_path: Path
) -> None:
    """One-token sentences among them, and more than one batch."""
    config = dataclasses.replace(TINY_MODEL, positions=positions)
    lengths = [1, 2, *torch.randint(2, 25, (101,)).tolist()]
    check_same(lively_model(config), vocabulary, tmp_path, some_lines(vocabulary, lengths))


def test_translations_that_reach_the_length_limit_are_as_ours(
    vocabulary: Vocabulary, tmp_path: Path
) -> None:
    model, lines = lively_model(TINY_MODEL, end=-3.0), some_lines(vocabulary, [3, 11, 2, 7, 3])
    sources = vocabulary.encode(lines)
    greedy = DecodingConfig(beam_size=1, max_extra_length=5)
    for row, translation in decode_sentences(model, sources, greedy):
        assert len(translation) == len(sources[row]) + 5
    check_same(model, vocabulary, tmp_path, lines, extra=5)


def test_padding_and_the_begin_are_never_chosen(vocabulary: Vocabulary, tmp_path: Path) -> None:
    model = lively_model(TINY_MODEL)
    with torch.no_grad():
        model.embedding.weight[[PAD_ID, BOS_ID]] = 3 * model.embedding.weight[[7, 11]]
        tgt = torch.tensor([[BOS_ID, 5, 7, 11, 13, 17, 23]])
        likeliest = model(torch.tensor([[5, 7, EOS_ID]]), tgt).argmax(-1)
    assert {PAD_ID, BOS_ID} & set(likeliest[0].tolist()), "the model is not tempted"
    check_same(model, vocabulary, tmp_path, some_lines(vocabulary, [2, 3, 5, 7, 11, 13]))


def test_no_logit_below_ten_thousand_outweighs_that_padding_is_never_chosen(
    vocabulary: Vocabulary, tmp_path: Path
) -> None:
    model, lines = lively_model(TINY_MODEL, end=-3.0), some_lines(vocabulary, [7])
    sources = vocabulary.encode(lines)
    greedy = DecodingConfig(beam_size=1, max_extra_length=7)
    ((_, written),) = decode_sentences(model, sources, greedy)
    with torch.no_grad():
        logits = model(torch.tensor(sources), torch.tensor([[BOS_ID, *written]]))[0]
        likeliest = logits[0].argmax()
        largest = logits[:, likeliest].max()
        model.embedding.weight[PAD_ID] = model.embedding.weight[likeliest] * 9_000 / largest
    check_same(model, vocabulary, tmp_path, lines)


def test_lines_that_ctranslate2_does_not_take_are_left_out_and_torch_keeps_its_threads(
    vocabulary: Vocabulary, tmp_path: Path, set_threads: Callable[[int], None]
) -> None:
    set_threads(2)
    model = lively_model(TINY_MODEL, end=3.0)
    write_ctranslate2_model(model, vocabulary, tmp_path)
    lines = ["", *some_lines(vocabulary, [3]), "one " * 2_100]
    assert compare_greedy(model, vocabulary, tmp_path, lines, 3) == (1, 1)
    assert torch.get_num_threads() == 2


def test_other_weights_translate_otherwise(vocabulary: Vocabulary, tmp_path: Path) -> None:
    write_ctranslate2_model(lively_model(TINY_MODEL), vocabulary, tmp_path)
    lines = some_lines(vocabulary, [5, 7, 11, 13])
    other = lively_model(TINY_MODEL, end=-3.0)
    same, compared = compare_greedy(other, vocabulary, tmp_path, lines, 7)
    assert same < compared == 4


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


FORMATS = {
    "ctranslate2": [
        "config.json", "data.json", "experiment.json", "export.json", "model.bin",
        "shared_vocabulary.json", "vocabulary.model",
    ],
    "safetensors": [
        "config.json", "data.json", "export.json", "model.safetensors", "vocabulary.model",
    ],
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("format", FORMATS)
def test_an_export_is_written_beside_the_checkpoints_and_replaced(
    format: str, copy: Path, finished: Path, call: Command
):
    (copy / f"..{format}.new.part").mkdir()  # left by an export that was killed
    for _ in range(2):
        ended = call("export", copy, "--format", format)
        if format == "safetensors":
            (copy / format / "attention.html").touch()  # as `attention` leaves it
            ended = call("export", copy, "--format", format)
        assert ended.code == 0 and ended.stdout.startswith(f"{copy / format}  0.")
        assert names(copy / format) == FORMATS[format]
    if format == "ctranslate2":
        (line,) = call("attention", copy / format, "one").lines
        assert line.endswith("is an export for CTranslate2: give the run")
    assert names(copy) == sorted([*names(finished), format])


@pytest.mark.parametrize("moment", ["write_json", "making", "rename-1", "rename-2", "remove-3"])
def test_an_export_that_is_killed_leaves_the_earlier_one_or_the_new_one(
    moment: str, copy: Path, call: Command, monkeypatch: pytest.MonkeyPatch
):
    export, words = copy / "safetensors", ("export", copy, "--format", "safetensors")
    assert call(*words).code == 0
    (export / "attention.html").write_text("earlier")
    name, _, number = moment.partition("-")
    original, count = getattr(export_module, name), itertools.count(1)

    def kill(*given: Any) -> Any:
        if next(count) == int(number or 1):
            raise KeyboardInterrupt
        return original(*given)

    with monkeypatch.context() as patch:
        patch.setattr(export_module, name, kill)
        assert call(*words).code == 130
    _take_back(export)  # as the next export does first
    files = FORMATS["safetensors"]
    assert names(export) == (files if name == "remove" else sorted([*files, "attention.html"]))
    assert call(*words).code == 0
    assert names(export) == files and names(copy).count("safetensors") == 1
    assert not list(copy.glob(".*safetensors*"))


@pytest.mark.parametrize(
    "files",
    [
        ["config.json"],
        ["config.json", "model.safetensors"],  # as other programs write them
        ["config.json", "data.json", "vocabulary.model"],
        ["config.json", "model.safetensors", "vocabulary.model", "mine.txt"],
    ],
)
def test_what_is_no_export_is_not_replaced(
    files: list[str], finished: Path, tmp_path: Path, call: Command
):
    for name in files:
        (tmp_path / name).write_text("mine")
    ended = call("export", finished, "--format", "safetensors", "--output", tmp_path)
    assert ended.code == 2 and "exists and is not an earlier export of this kind" in ended.stderr
    assert [(tmp_path / name).read_text() for name in files] == ["mine"] * len(files)


def test_a_place_without_a_name_is_refused(finished: Path, call: Command):
    ended = call("export", finished, "--format", "safetensors", "--output", "/")
    assert ended.code == 2 and ended.lines[-1].endswith(
        "--output / cannot be replaced: choose a folder"
    )


@pytest.mark.parametrize("format", FORMATS)
def test_an_export_of_other_weights_is_named(format: str, copy: Path, call: Command):
    export = copy / format
    assert call("export", copy, "--format", format).code == 0
    for place in (copy, export):
        assert call("verify", place).code == 0
    weights = next(export.glob("model.*"))
    kept = weights.read_bytes()
    flip_a_bit(weights)
    for place in (copy, export):
        ended = call("verify", place)
        assert ended.code == 2 and f"{weights}: not as it was exported\n" in ended.stdout
    weights.write_bytes(kept)
    last = copy / "checkpoints" / "step-00000040.ckpt"
    last.unlink()  # as if the training had gone on since, or were another
    ended = call("verify", copy)
    assert ended.code == 2
    assert f"{export}: made from other weights than the run has: export it again" in ended.stdout
    (export / "export.json").write_text("{")
    assert "export.json: damaged: export it again" in call("verify", copy).stdout


def test_an_export_gives_the_results_of_the_run(finished: Path, tmp_path: Path, call: Command):
    export, output = tmp_path / "export", tmp_path / "hypotheses.txt"
    (tmp_path / "disk").mkdir()
    export.symlink_to(tmp_path / "disk")
    assert call("export", finished, "--format", "safetensors", "--output", export).code == 0
    assert call("evaluate", export, "--output", output).code == 0
    assert output.read_bytes() == (finished / "valid.hypotheses.txt").read_bytes()


def test_a_quantized_export_is_smaller_and_lines_are_compared_with_torchs(
    copy: Path, call: Command
):
    words = ("export", copy, "--format", "ctranslate2")
    said = call(*words, "--check", "5").stdout
    assert said.endswith("\n5 of 5 lines are translated as by torch, by greedy search\n")
    for quantization in ("int8", "float16"):
        assert call(*words, "--quantization", quantization).code == 0
    full, int8, half = (
        (copy / name / "model.bin").stat().st_size
        for name in ("ctranslate2", "ctranslate2-int8", "ctranslate2-float16")
    )
    assert int8 < full and half < 0.6 * full


def test_an_export_for_ctranslate2_has_the_runs_scores_by_greedy_search(
    finished: Path, tmp_path: Path, call: Command
):
    export, output = tmp_path / "export", tmp_path / "hypotheses.txt"
    assert call("export", finished, "--format", "ctranslate2", "--output", export).code == 0
    words = ("--split", "test", "--beam-size", "1")
    ours = call("evaluate", finished, *words).stdout.splitlines()
    ended = call("evaluate", export, *words, "--output", output)
    found = ended.stdout.splitlines()
    assert (ended.code, ended.stderr) == (0, "")
    *scores, perplexity, per_char = (float(x) for x in NUMBERS.findall(found[0]))
    *expected, our_perplexity, our_per_char = (float(x) for x in NUMBERS.findall(ours[0]))
    assert scores == expected and max(scores) > 5
    # A model of forty steps gives padding and the begin of a sentence a probability too.
    assert (perplexity, per_char) == pytest.approx((our_perplexity, our_per_char), rel=0.02)
    library = ctranslate2.__version__
    search = f"search:ctranslate2-{library}|type:float32|beam:1|penalty:length^0.6"
    assert found[1:-1] == [f"{signature}|{search}" for signature in ours[1:-1]]
    assert found[-1] == (
        f"11 lines, CTranslate2 {library} in float32, beam 1, its own length penalty, to the "
        "power 0.6"
    )
    assert len(output.read_text().splitlines()) == 11
    assert json.loads((finished / "result.json").read_text())["bleu_signature"] in ours[1]


@pytest.mark.slow
def test_an_int8_export_searches_by_ctranslate2_alone(
    finished: Path, tmp_path: Path, command: Command, call: Command
):
    """Its translations are those of its own beam search, whichever command asks for them."""
    export, output = tmp_path / "export", tmp_path / "hypotheses.txt"
    words = ("export", finished, "--format", "ctranslate2", "--quantization", "int8")
    assert call(*words, "--output", export).code == 0
    text = ["one two three", "", "four " * 2_100, "five"]
    for name in ("text.en", "text.de"):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in text))
    given = ("--source", tmp_path / "text.en", "--reference", tmp_path / "text.de")
    search = ("--beam-size", "3", "--length-penalty", "0.9")
    with pytest.warns(UserWarning, match="line 3 has"):
        ended = call("evaluate", export, *given, *search, "--output", output)
    assert "in int8_float32, beam 3, its own length penalty, to the power 0.9" in ended.stdout
    assert ended.stdout.count("|type:int8_float32|beam:3|penalty:length^0.9\n") == 3
    stdin = (tmp_path / "text.en").read_bytes()
    again = command("experiments", "translate", export, *search, stdin=stdin)
    assert again.stdout == output.read_text()
    translator = ctranslate2.Translator(str(export), device="cpu")
    vocabulary = Vocabulary(export / "vocabulary.model")
    pieces = vocabulary.pieces()
    (source,) = vocabulary.encode(["one two three"])
    (expected,) = translator.translate_batch(
        [[pieces[x] for x in source[:-1]]], beam_size=3, length_penalty=0.9,
        max_decoding_length=len(source) + 5, min_decoding_length=0,
    )  # fmt: skip
    first, empty, long, _ = again.stdout.splitlines()
    assert (empty, long) == ("", "")
    assert first == vocabulary.decode([pieces.index(x) for x in expected.hypotheses[0]])


def test_ctranslate2_divides_by_a_power_of_the_length(
    vocabulary: Vocabulary, tmp_path: Path
) -> None:
    """What a signature says of it: the end of the sentence counts."""
    model = lively_model(TINY_MODEL)
    write_ctranslate2_model(model, vocabulary, tmp_path)
    translator, pieces = ctranslate2.Translator(str(tmp_path)), vocabulary.pieces()
    source = [pieces[x] for x in some_sources([7])[0][:-1]]
    (found,) = translator.translate_batch(
        [source], beam_size=4, num_hypotheses=3, length_penalty=0.6, return_scores=True,
        min_decoding_length=0, max_decoding_length=50,
    )  # fmt: skip
    for hypothesis, shown in zip(found.hypotheses, found.scores, strict=True):
        (scored,) = translator.score_batch([source], [hypothesis])
        assert shown == pytest.approx(
            sum(scored.log_probs) / (len(hypothesis) + 1) ** 0.6, rel=1e-4
        )


@pytest.mark.parametrize(
    ("break_it", "words", "said"),
    [
        (lambda x: (x / "experiment.json").unlink(), (), ": an earlier version wrote it; export"),
        (lambda x: (x / "model.bin").write_bytes(b"0" * 99), (), "CTranslate2 cannot read"),
        (lambda _: None, ("--average", "2"), "is an export and holds no checkpoints to average"),
    ],
)
def test_an_export_that_cannot_be_evaluated_is_named(
    break_it: Callable[[Path], Any],
    words: tuple[str, ...],
    said: str,
    finished: Path,
    tmp_path: Path,
    call: Command,
):
    export = tmp_path / "export"
    assert call("export", finished, "--format", "ctranslate2", "--output", export).code == 0
    break_it(export)
    ended = call("evaluate", export, *words)
    assert ended.code == 2 and len(ended.lines) == 1 and said in ended.stderr


@pytest.mark.slow
@pytest.mark.parametrize("format", FORMATS)
def test_a_full_disk_leaves_nothing_behind(
    format: str, finished: Path, command: Command, tmp_path: Path
):
    output = tmp_path / "export"
    arguments = ("experiments", "export", finished, "--format", format, "--output", output)
    ended = command(*arguments, largest_file=1_000)
    assert (ended.code, len(ended.lines)) == (2, 1), ended
    assert not [path for path in tmp_path.iterdir() if "export" in path.name]


@pytest.mark.parametrize("format", FORMATS)
def test_a_missing_extra_is_reported_with_how_to_install_it(
    format: str, finished: Path, monkeypatch: pytest.MonkeyPatch, call: Command
):
    monkeypatch.setitem(sys.modules, format, None)
    ended = call("export", finished, "--format", format)
    assert ended.code == 2 and "is not installed: pip install '.[export]'" in ended.stderr
