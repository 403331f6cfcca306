"""Tables and searches of runs."""

from __future__ import annotations

import sys

from ablations.cli import PROGRAM

if __name__ == "__main__":
    sys.exit(PROGRAM.run())
