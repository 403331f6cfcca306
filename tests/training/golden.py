"""Regenerates the golden losses: ``python -m tests.training.golden``."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

import torch

from tests.samples import write_corpus
from tests.training.test_module import GOLDEN, golden_losses
from transformer.data.corpora.folders import folder_corpus

if __name__ == "__main__":
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["DATA_CACHE"] = folder
        losses = golden_losses(folder_corpus(write_corpus(Path(folder) / "numbers")))
    GOLDEN.write_text(json.dumps([round(loss, 6) for loss in losses], indent=2) + "\n")
