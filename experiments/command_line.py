"""What the entry points share: how a command line is read, and how a command ends."""

from __future__ import annotations

import argparse
import errno
import os
import signal
import sys
import warnings
from collections.abc import Callable
from typing import Any, NoReturn

from transformer.errors import InputError

# A full disk, or one we may not write to: nothing of ours is broken.
_ENVIRONMENT = (
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EFBIG,
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
)
BAD_INPUT = 2


class Parser(argparse.ArgumentParser):
    """Refuses a wrong command line in one line.

    ``argparse`` rather than a reader of type hints: those take longer to import than a command
    such as ``status`` may take as a whole.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(allow_abbrev=False, **settings)

    def error(self, message: str) -> NoReturn:
        """End with exit code 2."""
        self.exit(BAD_INPUT, f"{self.prog}: error: {message}; see {self.prog} --help\n")


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
        if isinstance(error, PermissionError) and error.filename:
            error = InputError(f"{error.filename}: permission denied, check whose it is")
        print(f"{parser.prog}: error: {error}", file=sys.stderr)
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
