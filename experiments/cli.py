"""The commands of ``python -m experiments``, each below the declaration of its arguments."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.command_line import LOG, VARIANT, Program, arg
from transformer.errors import InputError

if TYPE_CHECKING:
    from experiments.records.experiment import Log

PROGRAM = Program(
    "python -m experiments",
    "Named runs, one at a time.",
    examples=(
        "list",
        "train multi30k --max-minutes 10",
        "evaluate runs/multi30k-seed1 --split test",
        "translate runs/multi30k-seed1 < source.txt > translation.txt",
    ),
)

_VOCAB_SIZE = arg(
    "--vocab-size", type=int, metavar="N", help="word-pieces (default: the experiment's)"
)
_EXPERIMENT = (
    arg("name", metavar="NAME", help="a name that list prints, files:FOLDER, or a file"),
    _VOCAB_SIZE,
)
_MODEL = (
    arg("directory", type=Path, metavar="DIR", help="the directory of a run, or safetensors"),
    VARIANT,
    arg(
        "--average",
        type=int,
        metavar="N",
        help="last checkpoints to average (default: the experiment's)",
    ),
)
_DECODING = (
    *_MODEL,
    arg("--engine", choices=("torch", "ctranslate2"), default="torch", help="what decodes"),
    arg("--beam-size", type=int, metavar="K", help="1 is greedy (default: the experiment's)"),
    arg(
        "--length-penalty",
        type=float,
        metavar="A",
        help="alpha of the paper's formula (default: the experiment's)",
    ),
)
# As CTranslate2 names them.
_QUANTIZATIONS = (
    "int8", "int8_float32", "int8_float16", "int8_bfloat16", "int16",
    "float16", "bfloat16", "float32",
)  # fmt: skip


@PROGRAM.command("list", examples=("list",))
def list_experiments() -> int:
    """Print the experiments that can be named.

    These are the project's own and the results of searches in runs/; files:FOLDER, treebank:FOLDER
    and FILE.py stand for text, trees and experiments of your own.
    """
    from experiments.catalog.find import EXPERIMENTS, searched

    for name, experiment in EXPERIMENTS.items():
        print(f"{name:18} {experiment.description}")
    for name, found in searched().items():
        for path, experiment in found:
            print(f"{name:18} {experiment.description} ({path})")
    print(f"{'files:FOLDER':18} train.en, train.de, valid.en, … of your own; files:FOLDER:de-en")
    print(f"{'treebank:FOLDER':18} the paper's parser, trained on your copy of the Penn Treebank")
    print(f"{'FILE.py':18} CORPUS = Corpus(…) or EXPERIMENT = Experiment(…) of your own")
    print(f"{'FILE.json':18} the best.json of a search")
    return 0


@PROGRAM.command(
    "prepare",
    *_EXPERIMENT,
    arg("--workers", type=int, metavar="N", help="processes (default: one for each core)"),
    examples=("prepare multi30k", "prepare files:my_corpus --vocab-size 2000"),
)
def prepare(name: str, vocab_size: int | None, workers: int | None) -> int:
    """Fetch, clean and encode the data of an experiment.

    train does this by itself; use this command to do it beforehand, for example on a machine with
    a network. It prints how many lines were read, kept and dropped, and why. If it is stopped, the
    same command continues; if the data is complete, it does nothing.
    """
    from experiments.catalog.find import find_experiment
    from transformer.data.prepare.prepare import prepare as prepare_corpus

    if workers is not None and workers < 1:
        raise InputError(f"--workers is {workers}, but must be at least 1")
    corpus = prepare_corpus(find_experiment(name, vocab_size=vocab_size).config, workers=workers)
    for entry in corpus.report():
        reasons = "".join(f", {n:,} dropped: {reason}" for reason, n in entry.dropped.items())
        print(
            f"{entry.split} {entry.text}: {entry.lines:,} lines read, "
            f"{entry.kept:,} pairs kept{reasons}"
        )
    print(corpus.directory)
    return 0


@PROGRAM.command(
    "verify",
    arg("name", metavar="NAME|DIR", help="an experiment, files:FOLDER, FILE.py, or a run"),
    _VOCAB_SIZE,
    examples=("verify multi30k", "verify runs/multi30k-seed1"),
)
def verify(name: str, vocab_size: int | None) -> int:
    """Check every byte of an experiment's data, or of a run and its data."""
    from experiments.evaluate.verify import verify_all

    verify_all(name, vocab_size)
    return 0


@PROGRAM.command(
    "train",
    *_EXPERIMENT,
    VARIANT,
    arg("--directory", type=Path, metavar="DIR", help="of the run (default: runs/NAME-seedN)"),
    arg(
        "--seed",
        type=int,
        metavar="N",
        help="of all random choices (default: the experiment's)",
    ),
    arg(
        "--set",
        dest="settings",
        action="append",
        metavar="FIELD=VALUE",
        help="change a field of transformer/config.py; may be repeated (default: none)",
    ),
    arg(
        "--devices",
        type=int,
        metavar="N",
        help="GPUs, or processes if there is no GPU (default: 1, or as torchrun says)",
    ),
    arg("--accumulate", type=int, default=1, metavar="K", help="parts of a step, to save memory"),
    arg(
        "--max-steps",
        type=int,
        metavar="N",
        help="stop after N steps; the schedule stays, and a later start continues (default: none)",
    ),
    arg(
        "--max-minutes",
        type=float,
        metavar="M",
        help="stop after M minutes of training (default: none)",
    ),
    arg(
        "--checkpoint-minutes",
        type=float,
        metavar="M",
        help="write a checkpoint every M minutes (default: by steps)",
    ),
    arg("--compile", action="store_true", help="fuse operations with torch.compile, for GPUs"),
    LOG,
    examples=(
        "train multi30k --seed 2 --max-minutes 10",
        "train multi30k --set dropout=0.2 --set training.learning_rate_factor=0.7",
        "train wmt14_en_de_base --devices 4 --accumulate 2",
    ),
)
def train(
    name: str,
    directory: Path | None,
    seed: int | None,
    settings: Sequence[str] | None,
    devices: int | None,
    accumulate: int,
    max_steps: int | None,
    max_minutes: float | None,
    checkpoint_minutes: float | None,
    compile: bool,
    vocab_size: int | None,
    log: Log,
) -> int:
    """Train an experiment and score it.

    Called again with the same directory, it continues where it was stopped. The scores are printed
    and written to result.json in that directory.
    """
    from experiments.catalog.find import find_experiment
    from experiments.catalog.settings import with_settings
    from experiments.records.experiment import Limits
    from experiments.records.ownership import is_first_rank
    from experiments.records.progress import RunState
    from experiments.records.result import load_result, score_lines
    from experiments.run import execute

    experiment = find_experiment(
        name,
        seed=seed,
        vocab_size=vocab_size,
        compile=True if compile else None,
        checkpoint_every_minutes=checkpoint_minutes,
    )
    experiment = with_settings(experiment, settings or ())
    used_seed = experiment.config.training.seed
    directory = directory or Path("runs") / f"{experiment.name}-seed{used_seed}"
    outcome = execute(
        experiment,
        directory,
        devices=devices,
        accumulate=accumulate,
        limits=Limits(max_steps=max_steps, max_minutes=max_minutes),
        log=log,
    )
    if outcome.state != RunState.DONE:
        if outcome.signal is None or is_first_rank():
            print(outcome.message, file=sys.stderr)
        return 1 if outcome.signal is None else 128 + outcome.signal
    result = load_result(directory)
    if result is not None and is_first_rank():
        print(
            f"{result.steps:,} steps in {result.train_seconds:,.0f} s "
            f"({result.tokens_per_second:,.0f} target tokens/s)"
        )
        print("\n".join([*score_lines(result), str(directory)]))
    return 0


@PROGRAM.command(
    "evaluate",
    *_DECODING,
    arg("--split", default="valid", metavar="NAME", help="valid, test, or a set of sacreBLEU"),
    arg("--source", type=Path, metavar="FILE", help="lines to translate (default: the split's)"),
    arg("--reference", type=Path, metavar="FILE", help="their translations (default: the split's)"),
    arg("--output", type=Path, metavar="FILE", help="for the translations (default: none)"),
    examples=(
        "evaluate runs/multi30k-seed1 --split test --average 5 --beam-size 4",
        "evaluate runs/multi30k-seed1 --source my.en --reference my.de",
    ),
)
def evaluate(
    directory: Path,
    split: str,
    source: Path | None,
    reference: Path | None,
    output: Path | None,
    **options: Any,
) -> int:
    """Score a run on a split of its corpus, or on a text of your own.

    Prints BLEU with its signature and the perplexity.
    """
    from experiments.evaluate.trained import DecodingOptions, evaluate_run

    decoding = DecodingOptions(**options)
    evaluate_run(
        directory, decoding, split=split, source=source, reference=reference, output=output
    )
    return 0


@PROGRAM.command(
    "compare",
    arg("first", type=Path, metavar="FIRST", help="the directory of a run, or a file of lines"),
    arg("second", type=Path, metavar="SECOND", help="another of the same kind"),
    arg("--split", choices=("valid", "test"), help="of the corpus of both runs (default: valid)"),
    arg(
        "--reference",
        type=Path,
        metavar="FILE",
        help="reference translations of two files of lines (default: none, compare runs)",
    ),
    examples=(
        "compare runs/multi30k-seed1 runs/multi30k-seed2 --split test",
        "compare ours.de theirs.de --reference test.de",
    ),
)
def compare(first: Path, second: Path, split: str | None, reference: Path | None) -> int:
    """Test whether two runs, or two files of translations, differ by more than chance.

    Uses sacreBLEU's approximate randomisation. Two runs are compared by the translations that they
    wrote; two files need --reference.
    """
    from experiments.evaluate.significance import compare_files, compare_runs

    if reference is None:
        print(compare_runs(first, second, split or "valid"))
    elif split is None:
        print(compare_files(first, second, reference))
    else:
        raise InputError("--split is for runs, --reference for files: give one of them")
    return 0


@PROGRAM.command(
    "translate",
    *_DECODING,
    examples=("translate runs/multi30k-seed1 < source.txt > translation.txt",),
)
def translate(directory: Path, **options: Any) -> int:
    """Translate standard input to standard output, line by line.

    The input is plain UTF-8 text, one sentence per line.
    """
    from experiments.evaluate.trained import DecodingOptions, translate_stream

    return _print_lines(translate_stream(directory, sys.stdin.buffer, DecodingOptions(**options)))


@PROGRAM.command(
    "parse",
    *_DECODING,
    examples=("parse runs/craft_short-seed1 < sentences.txt > trees.txt",),
)
def parse(directory: Path, **options: Any) -> int:
    """Parse the sentences of standard input into trees in brackets, line by line.

    The input is plain UTF-8 text, one sentence per line, with spaces around words and punctuation.
    """
    from experiments.evaluate.trained import DecodingOptions, parse_stream

    return _print_lines(parse_stream(directory, sys.stdin.buffer, DecodingOptions(**options)))


def _print_lines(lines: Iterable[str]) -> int:
    for line in lines:
        sys.stdout.buffer.write(f"{line}\n".encode())
        sys.stdout.buffer.flush()
    return 0


@PROGRAM.command(
    "attention",
    *_MODEL,
    arg("sentence", metavar="SENTENCE", help="one sentence of the source language, in quotes"),
    arg("--translation", metavar="TEXT", help="its translation (default: the run's own)"),
    arg(
        "--kind",
        choices=("encoder", "decoder", "cross"),
        default="encoder",
        help="self-attention of encoder or decoder, or from decoder to encoder",
    ),
    arg("--layer", type=int, metavar="N", help="from 1 (default: the last)"),
    arg("--heads", metavar="N,N", help="from 1, such as 1,5 (default: all)"),
    arg("--words", action="store_true", help="join word-pieces to words"),
    arg("--find", action="store_true", help="list and draw the heads that do most of one thing"),
    arg(
        "--output",
        type=Path,
        metavar="FILE",
        help="ends in .html, .svg, .pdf or .png (default: DIR/attention.html)",
    ),
    examples=(
        'attention runs/multi30k-seed1 "A man is cleaning a window." --words --find',
        'attention runs/multi30k-seed1 "Two dogs play." --kind cross --layer 3 --output dogs.svg',
    ),
)
def attention(
    directory: Path,
    sentence: str,
    translation: str | None,
    average: int | None,
    output: Path | None,
    **view: Any,
) -> int:
    """Draw what the heads of a run attend to in a sentence.

    An HTML page shows all layers and heads, and the lines of each word; SVG, PDF and PNG show the
    heads that are given, as the paper's figures 3 to 5 do. The weights of a word-piece in the
    decoder are those with which it is written.
    """
    from experiments.attention.command import View, show_attention

    show_attention(
        directory,
        sentence,
        View(**view),
        translation=translation,
        average=average,
        output=output,
    )
    return 0


@PROGRAM.command(
    "export",
    *_MODEL,
    arg("--format", required=True, choices=("ctranslate2", "safetensors"), help="what to write"),
    arg(
        "--quantization",
        choices=_QUANTIZATIONS,
        metavar="TYPE",
        help=f"for CTranslate2: {', '.join(_QUANTIZATIONS)} (default: float32)",
    ),
    arg("--output", type=Path, metavar="DIR", help="the folder to write (default: DIR/FORMAT)"),
    arg(
        "--check",
        type=int,
        metavar="N",
        help="translate N lines with both engines and compare (default: no check)",
    ),
    examples=(
        "export runs/multi30k-seed1 --format safetensors --average 5",
        "export runs/multi30k-seed1 --format ctranslate2 --quantization int8 --check 1000",
    ),
)
def export(
    directory: Path,
    format: str,
    quantization: str | None,
    average: int | None,
    output: Path | None,
    check: int | None,
) -> int:
    """Write a run's model for CTranslate2, or as safetensors.

    Needs the extra 'export': pip install '.[export]'.
    """
    from experiments.export.export import export_run

    export_run(
        directory, format, quantization=quantization, average=average, output=output, check=check
    )
    return 0
