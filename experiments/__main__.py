"""Named runs, one at a time."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from experiments import commands
from experiments.command_line import Command, Parser, make_parser, run_command_line

# As CTranslate2 names them.
_QUANTIZATIONS = (
    "int8",
    "int8_float32",
    "int8_float16",
    "int8_bfloat16",
    "int16",
    "float16",
    "bfloat16",
    "float32",
)


def _add_experiment(command: argparse.ArgumentParser) -> None:
    add = command.add_argument
    add("name", metavar="NAME", help="a name that list prints, files:FOLDER, or FILE.py")
    add("--vocab-size", type=int, metavar="N", help="word-pieces (default: the experiment's)")


def _add_directory(command: argparse.ArgumentParser) -> None:
    add = command.add_argument
    add("directory", type=Path, metavar="DIR", help="the directory of a run, or safetensors")
    add("--average", type=int, metavar="N", help="last checkpoints (default: the experiment's)")


def _add_decoding(command: argparse.ArgumentParser) -> None:
    _add_directory(command)
    add = command.add_argument
    add("--engine", choices=("torch", "ctranslate2"), default="torch", help="what decodes")
    add("--beam-size", type=int, metavar="K", help="1 is greedy (default: the experiment's)")
    add(
        "--length-penalty",
        type=float,
        metavar="A",
        help="alpha of the paper's formula (default: the experiment's)",
    )


def _list(command: argparse.ArgumentParser) -> None:
    del command


def _prepare(command: argparse.ArgumentParser) -> None:
    _add_experiment(command)
    command.add_argument(
        "--workers", type=int, metavar="N", help="processes (default: one for each core)"
    )


def _verify(command: argparse.ArgumentParser) -> None:
    add = command.add_argument
    add("name", metavar="NAME|DIR", help="an experiment, files:FOLDER, FILE.py, or a run")
    add("--vocab-size", type=int, metavar="N", help="word-pieces (default: the experiment's)")


def _train(command: argparse.ArgumentParser) -> None:
    _add_experiment(command)
    add = command.add_argument
    add("--directory", type=Path, metavar="DIR", help="of the run (default: runs/NAME-seedN)")
    add(
        "--seed",
        type=int,
        metavar="N",
        help="of weights, dropout and order of the data (default: the experiment's)",
    )
    add(
        "--set",
        dest="settings",
        action="append",
        metavar="FIELD=VALUE",
        help="change a field of transformer/config.py; may be given several times, and becomes "
        "part of the run's name (default: none)",
    )
    add(
        "--devices",
        type=int,
        metavar="N",
        help="GPUs, or processes without GPUs (default: 1, or as torchrun says)",
    )
    add("--accumulate", type=int, default=1, metavar="K", help="parts of a step, to save memory")
    add(
        "--max-steps",
        type=int,
        metavar="N",
        help="stop after N steps; the schedule stays, and a later start continues (default: none)",
    )
    add(
        "--max-minutes",
        type=float,
        metavar="M",
        help="stop after M minutes of training; a later start continues (default: none)",
    )
    add(
        "--checkpoint-minutes",
        type=float,
        metavar="M",
        help="write a checkpoint every M minutes (default: by steps)",
    )
    add("--compile", action="store_true", help="fuse operations with torch.compile, for GPUs")


def _evaluate(command: argparse.ArgumentParser) -> None:
    _add_decoding(command)
    add = command.add_argument
    add("--split", default="valid", metavar="NAME", help="valid, test, or a set of sacreBLEU")
    add("--source", type=Path, metavar="FILE", help="lines to translate (default: the split's)")
    add("--reference", type=Path, metavar="FILE", help="their translations (default: the split's)")
    add("--output", type=Path, metavar="FILE", help="for the translations (default: none)")


def _compare(command: argparse.ArgumentParser) -> None:
    add = command.add_argument
    add("first", type=Path, metavar="FIRST", help="the directory of a run, or a file of lines")
    add("second", type=Path, metavar="SECOND", help="another of the same kind")
    add("--split", choices=("valid", "test"), help="of the corpus of both runs (default: valid)")
    add(
        "--reference",
        type=Path,
        metavar="FILE",
        help="reference translations of two files of lines (default: none, compare runs)",
    )


def _export(command: argparse.ArgumentParser) -> None:
    _add_directory(command)
    add = command.add_argument
    add("--format", required=True, choices=("ctranslate2", "safetensors"), help="what is written")
    add(
        "--quantization",
        choices=_QUANTIZATIONS,
        metavar="TYPE",
        help=f"for CTranslate2: {', '.join(_QUANTIZATIONS)} (default: float32)",
    )
    add("--output", type=Path, metavar="DIR", help="the folder to write (default: DIR/FORMAT)")
    add(
        "--check",
        type=int,
        metavar="N",
        help="translate N lines with both engines and compare (default: no check)",
    )


def _benchmark(command: argparse.ArgumentParser) -> None:
    add = command.add_argument
    sizes, parts = ("tiny", "base", "big"), ("train", "memory", "decode", "data")
    add("--size", choices=sizes, help="of the model (default: tiny on a CPU, base on a GPU)")
    add("--device", choices=("cpu", "cuda"), help="where to run (default: cuda if there is one)")
    add("--what", choices=parts, help="what to measure (default: all)")
    add("--turns", type=int, metavar="N", help="how often (default: some minutes' worth)")
    add("--compile", action="store_true", help="train with torch.compile")
    add("--output", type=Path, metavar="FILE", help="JSON (default: runs/benchmark-….json)")


def _benchmark_prepare(command: argparse.ArgumentParser) -> None:
    add = command.add_argument
    add("name", metavar="NAME", help="an experiment, whose training text is multiplied")
    add("--pairs", type=int, default=1_000_000, metavar="N", help="sentence pairs")
    add(
        "--output",
        type=Path,
        metavar="FILE",
        help="JSON (default: runs/benchmark-prepare-N.json)",
    )


_EXAMPLES = (
    "list",
    "train multi30k --max-minutes 10",
    "evaluate runs/multi30k-seed1 --split test",
    "translate runs/multi30k-seed1 < source.txt > translation.txt",
)
_COMMANDS = {
    "list": Command(commands.list_experiments, _list, ("list",)),
    "prepare": Command(
        commands.prepare,
        _prepare,
        ("prepare multi30k", "prepare files:my_corpus --vocab-size 2000"),
    ),
    "verify": Command(commands.verify, _verify, ("verify multi30k", "verify runs/multi30k-seed1")),
    "train": Command(
        commands.train,
        _train,
        (
            "train multi30k --seed 2 --max-minutes 10",
            "train multi30k --set dropout=0.2 --set training.learning_rate_factor=0.7",
            "train wmt14_en_de_base --devices 4 --accumulate 2",
        ),
    ),
    "evaluate": Command(
        commands.evaluate,
        _evaluate,
        (
            "evaluate runs/multi30k-seed1 --split test --average 5 --beam-size 4",
            "evaluate runs/multi30k-seed1 --source my.en --reference my.de",
        ),
    ),
    "compare": Command(
        commands.compare,
        _compare,
        (
            "compare runs/multi30k-seed1 runs/multi30k-seed2 --split test",
            "compare ours.de theirs.de --reference test.de",
        ),
    ),
    "translate": Command(
        commands.translate,
        _add_decoding,
        ("translate runs/multi30k-seed1 < source.txt > translation.txt",),
    ),
    "export": Command(
        commands.export,
        _export,
        (
            "export runs/multi30k-seed1 --format safetensors --average 5",
            "export runs/multi30k-seed1 --format ctranslate2 --quantization int8 --check 1000",
        ),
    ),
    "benchmark": Command(
        commands.benchmark, _benchmark, ("benchmark --size tiny", "benchmark --what decode")
    ),
    "benchmark-prepare": Command(
        commands.benchmark_prepare,
        _benchmark_prepare,
        ("benchmark-prepare multi30k --pairs 100000",),
    ),
}


def parser() -> Parser:
    """The parser of ``python -m experiments``."""
    return make_parser("python -m experiments", __doc__, _EXAMPLES, _COMMANDS)


if __name__ == "__main__":
    sys.exit(run_command_line(parser()))
