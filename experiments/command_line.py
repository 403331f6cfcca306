"""What the entry points share: how a command line is read, and how a command ends."""

from __future__ import annotations

import argparse
import errno
import inspect
import os
import re
import signal
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

from transformer.errors import InputError

# A full disk, or one we may not write to: nothing of ours is broken.
_DENIED = (errno.EACCES, errno.EPERM, errno.EROFS)
_ENVIRONMENT = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, *_DENIED)
BAD_INPUT = 2
_DISTRIBUTION = "attention-is-all-you-need"
_EXAMPLES = "examples:"
_USER_OF_URL = re.compile(r"://[^\s/]*@")


class Command(NamedTuple):
    """A command of an entry point, described by the docstring of its function, whose first line is
    the short description. The examples are without the program's name.
    """

    function: Callable[..., int]
    add_arguments: Callable[[argparse.ArgumentParser], None]
    examples: tuple[str, ...]


class Parser(argparse.ArgumentParser):
    """Refuses a wrong command line in one line.

    ``argparse`` rather than a reader of type hints: those take longer to import than a command
    such as ``status`` may take as a whole.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(allow_abbrev=False, formatter_class=_Help, **settings)

    def error(self, message: str) -> NoReturn:
        """End with exit code 2; the password of a URL in the message is left out."""
        shown = _USER_OF_URL.sub("://...@", message)
        self.exit(BAD_INPUT, f"{self.prog}: error: {shown}; see {self.prog} --help\n")


class _Help(argparse.HelpFormatter):
    """Keeps paragraphs and examples, and adds the default to the help of each option."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if text.startswith(_EXAMPLES):
            return text
        fill = super()._fill_text
        return "\n\n".join(fill(paragraph, width, indent) for paragraph in text.split("\n\n"))

    def _get_help_string(self, action: argparse.Action) -> str:
        text = action.help or ""
        default = action.default
        shown = default is not None and default is not False and default != argparse.SUPPRESS
        return f"{text} (default: %(default)s)" if shown else text


class _Version(argparse.Action):
    """Looks the version up only when it is asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        from importlib.metadata import PackageNotFoundError, version

        from experiments.run.provenance import commit

        try:
            number = version(_DISTRIBUTION)
        except PackageNotFoundError:  # a copy of the source that nobody installed
            number = "(not installed)"
        print(f"{_DISTRIBUTION} {number}, commit {commit()}")
        parser.exit()


def make_parser(
    prog: str, description: str | None, examples: Sequence[str], commands: Mapping[str, Command]
) -> Parser:
    """The parser of an entry point with these commands."""
    parser = Parser(prog=prog, description=description, epilog=_epilog(prog, examples))
    parser.add_argument(
        "--version", action=_Version, nargs=0, default=argparse.SUPPRESS, help="print the version"
    )
    subparsers = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, command in commands.items():
        text = inspect.cleandoc(command.function.__doc__ or "")
        subparser = subparsers.add_parser(
            name,
            help=text.partition("\n")[0],
            description=text,
            epilog=_epilog(prog, command.examples),
        )
        command.add_arguments(subparser)
        subparser.set_defaults(command=command.function)
    return parser


def _epilog(prog: str, examples: Sequence[str]) -> str:
    return "\n".join([_EXAMPLES, *(f"  {prog} {example}" for example in examples)])


def run_command_line(parser: Parser) -> int:
    """Carry out the command that the command line names, a function set as ``command``.

    Returns:
        Its exit code; 2 after one line on standard error for bad input or a full disk, 130 after
        a Ctrl-C, and 141 if nobody reads the output any more. A fault of ours keeps its traceback.
    """
    show_warnings_in_one_line()
    arguments = vars(parser.parse_args())
    command: Callable[..., int] = arguments.pop("command")
    try:
        return command(**arguments)
    except BrokenPipeError:
        # What is still buffered is written at exit, where no one could catch the error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except (InputError, OSError) as error:
        if not is_bad_input(error):
            raise
        denied = isinstance(error, OSError) and error.errno in _DENIED
        remedy = ": check whose it is, or choose a place that you may write to" if denied else ""
        print(f"{parser.prog}: error: {error}{remedy}", file=sys.stderr)
        return BAD_INPUT
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def is_bad_input(error: Exception) -> bool:
    """Whether a user, not a programmer, can mend it: bad input, a full disk, a killed process."""
    return isinstance(error, InputError | ChildProcessError) or (
        isinstance(error, OSError) and error.errno in _ENVIRONMENT
    )


def show_warnings_in_one_line() -> None:
    """Show a user what is the matter, and not which line of which file said so."""
    warnings.formatwarning = lambda message, *_args, **_more: f"warning: {message}\n"
