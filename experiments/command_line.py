"""Parts that both command lines share."""

from __future__ import annotations

import errno
import io
import os
import re
import signal
import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any, TextIO, TypeVar, get_args

from cyclopts import App, CycloptsError, Parameter, Token, convert

from experiments.devices import explain_out_of_memory
from experiments.records.experiment import Log as AnyLog
from experiments.records.ownership import forget_stray_rank
from experiments.records.provenance import commit
from transformer.errors import InputError
from transformer.files import visible

BAD_INPUT = 2
# A full disk, too many open files, a long name, missing permissions: these are not bugs of ours.
_DENIED = (errno.EACCES, errno.EPERM, errno.EROFS)
_EXHAUSTED = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EMFILE, errno.ENFILE)
# Something else is where a file or a folder should be.
_IN_PLACE = (errno.EISDIR, errno.ENOTDIR, errno.EEXIST, errno.ENOTEMPTY, errno.ELOOP, errno.ENXIO)
_ENVIRONMENT = (*_EXHAUSTED, errno.ENAMETOOLONG, *_DENIED, *_IN_PLACE)
_LESS_MEMORY = "free some, or take a smaller model, batch or beam"
_DISTRIBUTION = "attention-is-all-you-need"

Function = TypeVar("Function", bound=Callable[..., int | None])

# The fields of a dataclass as options of their own.
FLAT = Parameter(name="*")
Compile = Annotated[
    bool | None,
    Parameter(
        negative="--no-compile",
        help="fuse operations with torch.compile [default: on one GPU, where it is faster]",
    ),
]
Log = Annotated[AnyLog, Parameter(help="where metrics are logged, besides metrics.csv")]
Variants = Annotated[
    tuple[Path, ...],
    Parameter(name="--variant", help="FILE with a model or method of your own; may be repeated"),
]


class Program:
    """The command line of a package, declared by its functions' signatures and docstrings."""

    def __init__(self, package: str, description: str, *examples: str) -> None:
        is_script = Path(sys.argv[0]).name == package
        self.name = package if is_script else f"python -m {package}"
        self.commands: list[str] = []
        self.app = App(
            name=self.name,
            help=description,
            help_format="markdown",
            help_epilogue=self._list(examples),
            version=_version,
            version_flags="--version",
            default_parameter=Parameter(negative=(), show_default=_shown, converter=_convert),
            exit_on_error=False,
            print_error=False,
            suppress_keyboard_interrupt=False,
            result_action="return_value",
        )
        if is_script:  # a shell completes the words after the name of a program
            self.app.register_install_completion_command()

    def command(self, *examples: str) -> Callable[[Function], Function]:
        """Make the decorated function a command; it returns the exit code, or None for 0.

        Imports of torch, lightning, optuna or wandb belong inside the function, so that ``--help``
        and quick commands need not wait for them.
        """

        def declare(function: Function) -> Function:
            self.app.command(
                function, help_epilogue=self._list(examples), sort_key=len(self.commands)
            )
            self.commands.append(function.__name__.strip("_"))
            return function

        return declare

    def _list(self, examples: Sequence[str]) -> str:
        return "\n".join(["Examples:", "", *(f"- {self.name} {each}" for each in examples)])

    def run(self, words: Sequence[str] | None = None) -> int:
        """Carry out a command line, by default that of this process, and return its exit code.

        That is 2 after one line on standard error for bad input or a full disk, 130 after Ctrl-C,
        and 141 if nobody reads the output any more. Bugs of ours keep their traceback.
        """
        prepare_streams()
        try:
            forget_stray_rank()  # before Lightning, which would go by it, is imported
            try:
                with explain_out_of_memory(lambda: "here", _LESS_MEMORY):
                    return self.app(sys.argv[1:] if words is None else words) or 0
            finally:
                _flush()
        except BrokenPipeError:
            return 128 + signal.SIGPIPE
        except CycloptsError as error:
            line = " ".join(str(error).split()).removesuffix(".")
            _complain(f"{self.name}: error: {line}; see --help")
            return BAD_INPUT
        except (InputError, OSError) as error:
            if not is_bad_input(error):
                raise
            line = f"{self.name}: error: {error}"
            if isinstance(error, OSError) and error.errno in _DENIED:
                line += ": check whose it is, or choose a place that you may write to"
            _complain(line)
            return BAD_INPUT
        except KeyboardInterrupt:
            return 128 + signal.SIGINT


# Numbers with a point or an exponent.
_WITH_POINT = re.compile(r"[+-]?(\d*\.\d*(e[+-]?\d+)?|\d+e[+-]?\d+)", re.IGNORECASE)


def _convert(kind: Any, tokens: Sequence[Token]) -> Any:
    """Convert as cyclopts does, but refuse 1.5 and 2e-1 as whole numbers, and an empty path."""
    kinds = (kind, *get_args(kind))
    for token in tokens:
        if int in kinds and _WITH_POINT.fullmatch(token.value):  # which cyclopts would round
            raise ValueError(f"{token.value} is not a whole number")
        if Path in kinds and not token.value:
            raise ValueError("a path is empty")
    return convert(kind, tokens)


def _shown(default: Any) -> Any:
    """The default as the help shows it; None for one that is False or empty."""
    return None if default is False or default in ((), "") else default


def _version() -> str:
    try:
        number = version(_DISTRIBUTION)
    except PackageNotFoundError:  # a copy of the source
        number = "(not installed)"
    return f"{_DISTRIBUTION} {number}, commit {commit()}"


def is_bad_input(error: Exception) -> bool:
    """Whether the user can fix it: bad input, a full disk, missing permissions, a killed child."""
    return isinstance(error, InputError | ChildProcessError) or (
        isinstance(error, OSError) and error.errno in _ENVIRONMENT
    )


def prepare_streams() -> None:
    """Open the standard streams that the caller closed; print ``?`` for characters that a terminal
    cannot show, and warnings without their place in the code.
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
    warnings.formatwarning = lambda message, *_args, **_more: f"warning: {visible(str(message))}\n"


def print_checks(name: str, checked: Iterable[tuple[Path | str, str]]) -> None:
    """Print what is wrong with the files that were checked, and how many there are.

    Raises:
        InputError: if something is wrong.
    """
    count = problems = 0
    for path, problem in checked:
        count += 1
        if problem:
            problems += 1
            print(visible(f"{path}: {problem}"))
    if problems:
        raise InputError(f"{name}: {problems} of {count} files are not as they were")
    print(f"{count} files, all as they were")


def _complain(line: str) -> None:
    """Print a line on standard error, unless that is full, which may be what the line says."""
    try:
        print(visible(line), file=sys.stderr, flush=True)
    except OSError:
        _discard(sys.stderr)


def _flush() -> None:
    """Write what is buffered."""
    try:
        sys.stdout.flush()
    except OSError:
        _discard(sys.stdout)
        raise


def _discard(stream: TextIO) -> None:
    """Throw away what is buffered: at exit nobody could catch the error."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
