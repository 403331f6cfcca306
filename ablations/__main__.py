"""``python -m ablations``; the exit code is 1 if a run crashed, 2 for bad input."""

from __future__ import annotations

import sys

from ablations.cli import main

if __name__ == "__main__":
    sys.exit(main())
