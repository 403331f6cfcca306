"""The commands of ``python -m experiments``."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from experiments.catalog.find import EXPERIMENTS, find_experiment, searched
from experiments.catalog.own_text import FILES
from experiments.catalog.settings import with_settings
from experiments.command_line import FLAT, Compile, Log, Program, Variants, print_checks
from experiments.records.experiment import (
    CONFIG_FILE,
    EXPORT_FILE,
    DecodingOptions,
    Experiment,
    Limits,
    load_experiment,
)
from experiments.records.ownership import is_first_rank
from experiments.records.progress import RunState
from experiments.records.result import load_result
from experiments.records.score_lines import result_lines
from transformer.errors import InputError, VocabularySizeError
from transformer.terminal import say
from transformer.variant import trust

if TYPE_CHECKING:
    from experiments.run import Outcome

PROGRAM = Program(
    "experiments",
    "Named runs, one at a time.",
    "list",
    "train multi30k --max-minutes 10",
    "evaluate runs/multi30k-seed1 --split test",
    "translate runs/multi30k-seed1 < source.txt > translation.txt",
)
command = PROGRAM.command

Name = Annotated[str, Parameter(help="a name that list prints, files:FOLDER, or a file")]
VocabSize = Annotated[
    int | None, Parameter(help="number of word-pieces [default: the experiment's]")
]
Like = Annotated[
    str | None,
    Parameter(
        help="for text of your own, the experiment whose settings to take [default: chosen by the "
        "amount of text]"
    ),
]
Settings = Annotated[
    tuple[str, ...],
    Parameter(
        name="--set", help="FIELD=VALUE changes a field of transformer/config.py; may be repeated"
    ),
]
Run = Annotated[Path, Parameter(help="the directory of a run, or of an export of it")]
Average = Annotated[
    int | None,
    Parameter(help="how many of the last checkpoints to average [default: the experiment's]"),
]
Decoding = Annotated[DecodingOptions, FLAT]
# As CTranslate2 names them.
Quantization = Literal[
    "int8", "int8_float32", "int8_float16", "int8_bfloat16", "int16",
    "float16", "bfloat16", "float32",
]  # fmt: skip


@contextmanager
def _naming_the_option() -> Generator[None]:
    """Name the option that sets the size of a vocabulary, which other programs do not have."""
    try:
        yield
    except VocabularySizeError as error:
        raise InputError(f"{error} (--vocab-size)") from error


def _say_sizes(name: str, experiment: Experiment) -> None:
    """Print the sizes of an experiment whose settings follow from the amount of text."""
    if not name.startswith(FILES) or not is_first_rank():
        return
    config = experiment.config
    print(
        f"{experiment.description}: {config.model.vocab_size:,} word-pieces, "
        f"{config.model.num_layers} layers of d_model {config.model.d_model}, "
        f"{config.training.max_steps:,} steps of {config.data.tokens_per_batch:,} tokens "
        "(--like, --vocab-size and --set change them)",
        file=sys.stderr,
    )


@command("list")
def list_() -> None:
    """Print the experiments that can be named.

    These are the built-in ones and the best of each search in runs/; files:FOLDER, treebank:FOLDER
    and files stand for text, trees and experiments of your own.
    """
    for name, experiment in EXPERIMENTS.items():
        print(f"{name:18} {experiment.description}")
    for path, experiment in searched().items():
        print(f"{experiment.name:18} {experiment.description} ({path})")
    print(f"{'files:FOLDER':18} train.en, train.de, valid.en, … of your own; files:FOLDER:de-en")
    print(f"{'treebank:FOLDER':18} the paper's parser, trained on your copy of the Penn Treebank")
    print(f"{'FILE.py':18} CORPUS = Corpus(…) or EXPERIMENT = Experiment(…) of your own")
    print(f"{'FILE.json':18} the best.json of a search")


@command("prepare multi30k", "prepare files:my_corpus --set max_length_ratio=2")
def prepare(
    name: Name, /, *, like: Like = None, vocab_size: VocabSize = None, settings: Settings = ()
) -> None:
    """Fetch, clean and encode the data of an experiment.

    train does this by itself; use this command to do it beforehand, for example on a machine with
    a network, or to see what max_length, max_length_ratio and drop_duplicates leave out. It prints
    how many lines were read, kept and dropped, and why. If it is stopped, the same command
    continues; if the data is complete, it does nothing.
    """
    from transformer.data.prepare.pairs import FILTERS
    from transformer.data.prepare.prepare import prepare as prepare_corpus

    def explain(reason: str) -> str:
        setting = FILTERS.get(reason)
        if setting is None:
            return reason
        return f"{reason} ({setting}={getattr(experiment.config.data, setting)})".lower()

    experiment = with_settings(find_experiment(name, like, vocab_size=vocab_size), settings)
    _say_sizes(name, experiment)
    with _naming_the_option():
        corpus = prepare_corpus(experiment.config)
    for entry in corpus.report():
        dropped = entry.dropped.items()
        reasons = "".join(f", {count:,} dropped: {explain(reason)}" for reason, count in dropped)
        print(
            f"{entry.split} {entry.text}: {entry.lines:,} lines read, "
            f"{entry.kept:,} pairs kept{reasons}"
        )
    print(corpus.directory)


@command("verify multi30k", "verify runs/multi30k-seed1")
def verify(
    name: str, /, *, like: Like = None, vocab_size: VocabSize = None, settings: Settings = ()
) -> None:
    """Check every byte of an experiment's data, or of a run, its exports and its data.

    Args:
        name: an experiment, files:FOLDER, FILE.py, or the directory of a run or of an export
    """
    from experiments.records.checksums import not_copied, read_checksums, verify_files
    from experiments.records.data import recorded_data
    from transformer.data.prepare.prepare import verify as verify_data

    run, left_out = Path(name), list[str]()
    is_export, is_run = (run / EXPORT_FILE).is_file(), (run / CONFIG_FILE).is_file()
    if (is_export or is_run) and (like or vocab_size or settings):
        raise InputError(
            f"{run} is the directory of a run or an export, which records its settings: give no "
            "--like, --vocab-size or --set"
        )
    if is_export:
        from experiments.export.export import verify_export

        checked = verify_export(run)
    elif is_run:
        left_out = not_copied(run, read_checksums(run))
        data = verify_data(load_experiment(run).config, recorded_data(run))
        checked = itertools.chain(verify_files(run), _verify_exports(run), data)
    else:
        experiment = with_settings(find_experiment(name, like, vocab_size=vocab_size), settings)
        checked = verify_data(experiment.config)
    for each in left_out:
        print(f"{run / each}: not copied")
    print_checks(name, checked)


def _verify_exports(run: Path) -> Iterator[tuple[Path, str]]:
    for path in sorted(run.glob(f"*/{EXPORT_FILE}")):
        from experiments.export.export import verify_export  # imports torch

        yield from verify_export(path.parent, run)


@command(
    "train multi30k --seed 2 --max-minutes 10",
    "train multi30k --set dropout=0.2 --set training.learning_rate_factor=0.7",
    "train wmt14_en_de_base --devices 4 --accumulate 2",
)
def train(
    name: Name,
    /,
    *,
    like: Like = None,
    vocab_size: VocabSize = None,
    variant: Variants = (),
    directory: Path | None = None,
    seed: int | None = None,
    settings: Settings = (),
    devices: int | None = None,
    accumulate: int = 1,
    limits: Annotated[Limits, FLAT] = Limits(),
    checkpoint_minutes: float | None = None,
    keep_checkpoints: bool = False,
    compile: Compile = None,
    log: Log = "wandb",
) -> int:
    """Train an experiment and score it.

    Called again with the same directory, it continues where it was stopped. The scores are printed
    and written to result.json in that directory.

    Args:
        directory: where the run is written [default: runs/NAME-seedN]
        seed: seed of all random choices [default: the experiment's]
        devices: number of GPUs, or of processes if there is no GPU [default: 1, or torchrun's]
        accumulate: gradient-accumulation steps per optimizer step
        keep_checkpoints: keep whole checkpoints, with Adam's moments [default: once the run is
            scored, keep only the weights that were scored]
        checkpoint_minutes: write a checkpoint every M minutes of training [default: at the steps
            that the experiment sets]
    """
    trust(*variant)
    experiment = find_experiment(
        name,
        like,
        seed=seed,
        vocab_size=vocab_size,
        compile=compile,
        checkpoint_every_minutes=checkpoint_minutes,
    )
    experiment = with_settings(experiment, settings)
    _say_sizes(name, experiment)
    directory = directory or _run_directory(experiment)

    from experiments.run import execute

    with _naming_the_option():
        outcome = execute(
            experiment,
            directory,
            devices=devices,
            accumulate=accumulate,
            limits=limits,
            log=log,
            keep_checkpoints=keep_checkpoints,
        )
    return _print_end(outcome, directory)


def _run_directory(experiment: Experiment) -> Path:
    """Where a run is written by default."""
    name = experiment.name.replace("/", "-")
    return Path("runs") / f"{name}-seed{experiment.config.training.seed}"


def _print_end(outcome: Outcome, directory: Path) -> int:
    """Print the scores of a run, or why it has none, and return the exit code."""
    if outcome.state != RunState.DONE:
        if outcome.message and (outcome.signal is None or is_first_rank()):
            print(outcome.message, file=sys.stderr)
        return 1 if outcome.signal is None else 128 + outcome.signal
    result = load_result(directory)
    if result is not None and is_first_rank():
        print("\n".join([*result_lines(result), str(directory)]))
    return 0


@command(
    "evaluate runs/multi30k-seed1 --split test --average 5 --beam-size 4",
    "evaluate runs/multi30k-seed1 --source my.en --reference my.de",
)
def evaluate(
    directory: Run,
    /,
    *,
    split: str | None = None,
    source: Path | None = None,
    reference: Path | None = None,
    output: Path | None = None,
    variant: Variants = (),
    decoding: Decoding = DecodingOptions(),
) -> None:
    """Score a run on a split of its corpus, or on a text of your own.

    Prints BLEU and chrF with their signatures, and perplexity; for a parser, F1.

    Args:
        split: valid, test, or a set that sacreBLEU knows, such as wmt14 [default: valid]
        source: file with the lines to translate [default: the split's]
        reference: file with their translations [default: the split's]
        output: file to write the translations to [default: none]
    """
    from experiments.evaluate.scoring import evaluate_run

    if split is not None and source is not None:
        raise InputError("--split is a set of the corpus, --source your own text: give one of them")
    trust(*variant)
    evaluate_run(directory, decoding, split or "valid", source, reference, output)


@command("compare runs/multi30k-seed1 runs/multi30k-seed2 --split test")
def compare(first: Path, second: Path, /, *, split: Literal["valid", "test"] = "valid") -> None:
    """Test whether the translations that two runs wrote differ by more than chance.

    Uses sacreBLEU's approximate randomisation.

    Args:
        first: the directory of a run
        second: the directory of another run
        split: the split whose translations are compared
    """
    from experiments.evaluate.significance import compare_runs
    from experiments.records.run import read_run

    say(*str(compare_runs(read_run(first), read_run(second), split)).splitlines())


@command(
    "translate runs/multi30k-seed1 < source.txt > translation.txt",
    "translate runs/craft_short-seed1 < sentences.txt > trees.txt",
)
def translate(
    directory: Run, /, *, variant: Variants = (), decoding: Decoding = DecodingOptions()
) -> None:
    """Translate standard input to standard output, line by line; a parser writes trees in brackets.

    The input is plain UTF-8 text, one sentence per line; for a parser with spaces around words and
    punctuation. A line is translated as soon as it arrives, together with those that came with it.
    """
    from experiments.evaluate.stream import translate_stream

    trust(*variant)
    for line in translate_stream(directory, sys.stdin.buffer, decoding):
        sys.stdout.buffer.write(f"{line}\n".encode())
        sys.stdout.buffer.flush()


@command(
    'attention runs/multi30k-seed1 "A man is cleaning a window." --words',
    'attention runs/multi30k-seed1 "Two dogs play." --kind cross --layer 3 --output dogs.svg',
)
def attention(
    directory: Run,
    sentence: str,
    /,
    *,
    translation: str | None = None,
    kind: Literal["encoder", "decoder", "cross"] = "encoder",
    layer: int | None = None,
    heads: str | None = None,
    words: bool = False,
    average: Average = None,
    output: Path | None = None,
    variant: Variants = (),
) -> None:
    """Draw what the heads of a run attend to in a sentence.

    An HTML page shows all layers and heads, and the lines of each word; SVG, PDF and PNG show the
    heads that are given, as the paper's figures 3 to 5 do. In the decoder, a word-piece has the
    weights with which the model wrote it.

    Args:
        sentence: one sentence of the source language, in quotes
        translation: a translation of the sentence [default: the run's own]
        kind: self-attention of the encoder or the decoder, or cross-attention
        layer: the layer to draw, counted from 1 [default: the last]
        heads: the heads to draw, counted from 1, such as 1,5 [default: all]
        words: join word-pieces to words
        output: file that ends in .html, .svg, .pdf or .png [default: DIRECTORY/attention.html]
    """
    from experiments.attention.command import show_attention

    trust(*variant)
    show_attention(directory, sentence, kind, layer, heads, words, translation, average, output)


@command(
    "export runs/multi30k-seed1 --format safetensors --average 5",
    "export runs/multi30k-seed1 --format ctranslate2 --quantization int8 --check 1000",
    "export runs/multi30k-seed1 --format hf --check 1000",
)
def export(
    directory: Run,
    /,
    *,
    format: Literal["ctranslate2", "safetensors", "hf"],
    quantization: Quantization | None = None,
    average: Average = None,
    output: Path | None = None,
    check: int | None = None,
    variant: Variants = (),
) -> None:
    """Write a run's model for CTranslate2 or Hugging Face transformers, or as safetensors.

    Needs the extra 'export': pip install '.[export]'.

    Args:
        format: the format to write; hf is for Hugging Face transformers
        quantization: the type of CTranslate2's weights [default: float32]
        output: folder to write [default: DIRECTORY/FORMAT]
        check: translate N lines with both the export and torch, and compare [default: no check]
    """
    from experiments.export.export import export_run

    trust(*variant)
    export_run(directory, format, quantization, average, output, check)
