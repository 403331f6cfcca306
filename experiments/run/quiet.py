"""Libraries that talk at every start."""

from __future__ import annotations

import logging
import warnings


def quieten_libraries() -> None:
    """Lightning announces devices and tips at every start; faults still come through."""
    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module=r"lightning\..*")
