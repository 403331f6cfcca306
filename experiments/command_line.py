"""What the entry points share: how a command line is read, and how a command ends."""

from __future__ import annotations

import argparse
import errno
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from transformer.errors import InputError

# A full disk, or one we may not write to: nothing of ours is broken.
_ENVIRONMENT = (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS)


class Parser(argparse.ArgumentParser):
    """Refuses a wrong command line in one line.

    ``argparse`` rather than a reader of type hints: those take longer to import than a command
    such as ``status`` may take as a whole.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(allow_abbrev=False, **settings)

    def error(self, message: str) -> NoReturn:
        """End with exit code 2."""
        self.exit(2, f"{self.prog}: error: {message}; see {self.prog} --help\n")


def run_command_line(parser: Parser) -> int:
    """Carry out the command that the command line names, a function set as ``command``.

    Returns:
        Its exit code; 2 after one line on standard error for bad input or a full disk, and 130
        after a Ctrl-C. A fault of ours keeps its traceback.
    """
    arguments = vars(parser.parse_args())
    command: Callable[..., int] = arguments.pop("command")
    try:
        return command(**arguments)
    except InputError as error:
        return _refuse(parser, error)
    except OSError as error:
        if error.errno not in _ENVIRONMENT:
            raise
        return _refuse(parser, error)
    except KeyboardInterrupt:
        return 130


def _refuse(parser: Parser, error: Exception) -> int:
    print(f"{parser.prog}: error: {error}", file=sys.stderr)
    return 2
