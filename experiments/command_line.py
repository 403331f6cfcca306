"""What the command lines of the packages share: parser, errors, exit codes and signals."""

from __future__ import annotations

import argparse
import errno
import inspect
import io
import os
import re
import signal
import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from transformer.errors import InputError
from transformer.variant import trust

BAD_INPUT = 2
# Errors of a full disk or of missing permissions, which are not bugs of ours.
_DENIED = (errno.EACCES, errno.EPERM, errno.EROFS)
_ENVIRONMENT = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, *_DENIED)
_DISTRIBUTION = "attention-is-all-you-need"
_EXAMPLES = "examples:"
_USER_OF_URL = re.compile(r"://[^\s/]*@")

Argument = Callable[[argparse.ArgumentParser], object]
Function = TypeVar("Function", bound=Callable[..., int])


def arg(*names: str, **settings: Any) -> Argument:
    """An argument of a command, declared as for ``ArgumentParser.add_argument``."""
    return lambda parser: parser.add_argument(*names, **settings)


LOG = arg(
    "--log",
    choices=("wandb", "tensorboard", "csv", "none"),
    default="wandb",
    metavar="LOGGER",
    help="wandb, tensorboard, csv or none",
)


VARIANT = arg(
    "--variant",
    action="append",
    default=argparse.SUPPRESS,
    type=Path,
    metavar="FILE",
    help="defines a variant of the model (default: none)",
)


class Parser(argparse.ArgumentParser):
    """Reports a wrong command line in one line.

    ``argparse`` rather than a library that reads type hints: those take longer to import than a
    command such as ``status`` may take in all.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(allow_abbrev=False, formatter_class=_Help, **settings)

    def error(self, message: str) -> NoReturn:
        """End with exit code 2; passwords in URLs are left out of the message."""
        shown = _USER_OF_URL.sub("://...@", message)
        self.exit(BAD_INPUT, f"{self.prog}: error: {shown}; see {self.prog} --help\n")


class _Help(argparse.HelpFormatter):
    """Keeps paragraphs and examples, and appends the default to the help of each option."""

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
    """Looks up the version only if it is asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        from importlib.metadata import PackageNotFoundError, version

        from experiments.records.provenance import commit

        try:
            number = version(_DISTRIBUTION)
        except PackageNotFoundError:  # a copy of the source
            number = "(not installed)"
        print(f"{_DISTRIBUTION} {number}, commit {commit()}")
        parser.exit()


class Program:
    """The command line of a package: commands, each declared by :meth:`command`.

    Args:
        prog: how it is called, such as ``python -m experiments``
        description: the first line of its help
        examples: command lines without ``prog``
    """

    def __init__(self, prog: str, description: str, *, examples: Sequence[str]) -> None:
        self._prog = prog
        self.parser = Parser(prog=prog, description=description, epilog=self._epilog(examples))
        self.parser.add_argument(
            "--version",
            action=_Version,
            nargs=0,
            default=argparse.SUPPRESS,
            help="print the version",
        )
        self._commands = self.parser.add_subparsers(required=True, metavar="COMMAND")

    def command(
        self, name: str, *arguments: Argument, examples: Sequence[str]
    ) -> Callable[[Function], Function]:
        """Make the decorated function a command with these arguments.

        Its docstring is the command's help, and the first line its short description; it returns
        the exit code. Imports that one command needs belong into its function, so that ``--help``
        is quick.
        """

        def declare(function: Function) -> Function:
            text = inspect.cleandoc(function.__doc__ or "")
            parser = self._commands.add_parser(
                name,
                help=text.partition("\n")[0],
                description=text,
                epilog=self._epilog(examples),
            )
            for add in arguments:
                add(parser)
            parser.set_defaults(command=function)
            return function

        return declare

    def _epilog(self, examples: Sequence[str]) -> str:
        return "\n".join([_EXAMPLES, *(f"  {self._prog} {example}" for example in examples)])

    def run(self) -> int:
        """Carry out the command line.

        Returns:
            The command's exit code; 2 after one line on standard error for bad input or a full
            disk, 130 after Ctrl-C, and 141 if nobody reads the output any more. Bugs of ours keep
            their traceback.
        """
        prepare_streams()
        try:
            try:
                arguments = vars(self.parser.parse_args())
                command: Callable[..., int] = arguments.pop("command")
                for file in arguments.pop("variant", ()):
                    trust(file)
                return command(**arguments)
            finally:
                _flush()
        except BrokenPipeError:
            return 128 + signal.SIGPIPE
        except (InputError, OSError) as error:
            if not is_bad_input(error):
                raise
            denied = isinstance(error, OSError) and error.errno in _DENIED
            remedy = ": check whose it is, or choose a place that you may write to"
            message = f"{self._prog}: error: {error}{remedy * denied}"
            with suppress(OSError):  # of a full disk, which may be what there is to say
                print(message, file=sys.stderr)
            return BAD_INPUT
        except KeyboardInterrupt:
            return 128 + signal.SIGINT


def is_bad_input(error: Exception) -> bool:
    """Whether the user can fix it: bad input, a full disk, missing permissions, a killed child."""
    return isinstance(error, InputError | ChildProcessError) or (
        isinstance(error, OSError) and error.errno in _ENVIRONMENT
    )


def prepare_streams() -> None:
    """Open the standard streams that the caller closed, print ``?`` for what a terminal cannot
    show, and warnings without the file and the line that gave them.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:  # or the next file to be opened would be taken for it
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    sys.stdin = sys.stdin or os.fdopen(0, encoding="utf-8", closefd=False)
    sys.stdout = sys.stdout or os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", encoding="utf-8", closefd=False)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    warnings.formatwarning = lambda message, *_args, **_more: f"warning: {message}\n"


def _flush() -> None:
    """Write what is buffered; at exit nobody could catch the error."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise
