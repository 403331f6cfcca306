"""``python -m experiments``."""

from __future__ import annotations

import sys

from attention_is_all_you_need import experiments

if __name__ == "__main__":
    sys.exit(experiments())
