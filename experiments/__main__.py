"""``python -m experiments``."""

from __future__ import annotations

import sys

from experiments.cli import PROGRAM

if __name__ == "__main__":
    sys.exit(PROGRAM.run())
