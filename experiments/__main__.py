"""Named runs, one at a time."""

from __future__ import annotations

import sys
from pathlib import Path

from experiments import commands
from experiments.command_line import Parser, run_command_line

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


def _parser() -> Parser:
    parser = Parser(prog="python -m experiments", description=__doc__)
    subparsers = parser.add_subparsers(required=True, metavar="COMMAND")

    command = subparsers.add_parser("list", help=commands.list_experiments.__doc__)
    command.set_defaults(command=commands.list_experiments)

    command = subparsers.add_parser("prepare", help=commands.prepare.__doc__)
    _add_experiment(command)
    command.add_argument("--workers", type=int, metavar="N", help="processes (a core each)")
    command.set_defaults(command=commands.prepare)

    command = subparsers.add_parser("train", help=commands.train.__doc__)
    _add_experiment(command)
    add = command.add_argument
    add("--directory", type=Path, metavar="DIR", help="for all it writes (runs/NAME-seedN)")
    add("--seed", type=int, metavar="N", help="of initialisation, dropout and the data's order")
    add("--devices", type=int, metavar="N", help="GPUs; processes where there is none (1)")
    add("--accumulate", type=int, default=1, metavar="K", help="parts of a step, for less memory")
    add("--max-steps", type=int, metavar="N", help="end there; a later start may go on")
    add("--max-minutes", type=float, metavar="M", help="end then; a later start may go on")
    add("--checkpoint-minutes", type=float, metavar="M", help="write one so often, not by steps")
    add("--compile", action="store_true", help="fuse operations with torch.compile; for GPUs")
    command.set_defaults(command=commands.train)

    command = subparsers.add_parser("evaluate", help=commands.evaluate.__doc__)
    _add_decoding(command)
    add = command.add_argument
    add("--split", default="valid", metavar="NAME", help="valid, test, or a set of sacreBLEU")
    add("--source", type=Path, metavar="FILE", help="lines to translate in place of a split")
    add("--reference", type=Path, metavar="FILE", help="their translations")
    add("--output", type=Path, metavar="FILE", help="where the translations are written")
    command.set_defaults(command=commands.evaluate)

    command = subparsers.add_parser("compare", help=commands.compare.__doc__)
    add = command.add_argument
    add("first", type=Path, metavar="FIRST", help="the directory of a run, or a file of lines")
    add("second", type=Path, metavar="SECOND", help="another of the same kind")
    add("--split", choices=("valid", "test"), help="of the corpus of both runs (valid)")
    add("--reference", type=Path, metavar="FILE", help="what two files of lines should say")
    command.set_defaults(command=commands.compare)

    command = subparsers.add_parser("translate", help=commands.translate.__doc__)
    _add_decoding(command)
    command.set_defaults(command=commands.translate)

    command = subparsers.add_parser("export", help=commands.export.__doc__)
    _add_directory(command)
    add = command.add_argument
    add("--format", required=True, choices=("ctranslate2", "safetensors"), help="what is written")
    add("--quantization", choices=_QUANTIZATIONS, metavar="TYPE", help="int8, float16, … (float32)")
    add("--output", type=Path, metavar="DIR", help="the folder to write (DIR/FORMAT)")
    add("--check", type=int, metavar="N", help="translate N lines by both engines and compare")
    command.set_defaults(command=commands.export)

    command = subparsers.add_parser("benchmark", help=commands.benchmark.__doc__)
    add = command.add_argument
    add("--size", choices=["tiny", "base", "big"], help="tiny on a CPU, base on a GPU")
    add("--device", choices=["cpu", "cuda"], help="cuda if there is one")
    add("--what", choices=["train", "memory", "decode", "data"], help="all of it if not given")
    add("--turns", type=int, metavar="N", help="how often each is timed")
    add("--compile", action="store_true", help="train with torch.compile")
    add("--output", type=Path, metavar="FILE", help="the figures as JSON (under runs/)")
    command.set_defaults(command=commands.benchmark)

    command = subparsers.add_parser("benchmark-prepare", help=commands.benchmark_prepare.__doc__)
    add = command.add_argument
    add("name", metavar="NAME", help="an experiment, of whose training text it is made")
    add("--pairs", type=int, default=1_000_000, metavar="N", help="pairs (1,000,000)")
    add("--output", type=Path, metavar="FILE", help="the figures as JSON (under runs/)")
    command.set_defaults(command=commands.benchmark_prepare)
    return parser


def _add_experiment(command: Parser) -> None:
    command.add_argument(
        "name", metavar="NAME", help="one that list prints, files:FOLDER, or FILE.py"
    )
    command.add_argument("--vocab-size", type=int, metavar="N", help="word-pieces")


def _add_decoding(command: Parser) -> None:
    _add_directory(command)
    add = command.add_argument
    add("--engine", choices=("torch", "ctranslate2"), default="torch", help="what searches (torch)")
    add("--beam-size", type=int, metavar="K", help="hypotheses; 1 is greedy")
    add("--length-penalty", type=float, metavar="A", help="alpha of the paper's formula")


def _add_directory(command: Parser) -> None:
    add = command.add_argument
    add("directory", type=Path, metavar="DIR", help="the directory of a run, or safetensors")
    add("--average", type=int, metavar="N", help="average the last N checkpoints")


if __name__ == "__main__":
    sys.exit(run_command_line(_parser()))
