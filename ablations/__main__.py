"""Tables and searches of runs."""

from __future__ import annotations

import sys

from attention_is_all_you_need import ablations

if __name__ == "__main__":
    sys.exit(ablations())
