"""Measure speed and memory against plain torch code.

The two take turns, so that a busy machine slows both. Each script is one measurement, for example
``python -m bench.train``; none is part of the installed package.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from transformer.errors import InputError


def end_in_one_line(main: Callable[[], None]) -> None:
    """Call a script's ``main``; bad input ends with one line and the exit code 2."""
    try:
        main()
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
