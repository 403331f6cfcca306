"""The code that a compiler would run of a packed step on an H200."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from typing import Any

import pytest
import torch

from tests.training.inductor_code import SIZES

# Gigabytes that the fused operations of a whole step may read and write. At 80 % of an H200's 4.3
# TB/s, 30 GB take 8.7 ms.
BUDGETS = {"base": 30.0, "big": 55.0}

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(1_800),
    pytest.mark.skipif(torch.version.cuda is None, reason="needs torch's CUDA build"),
]


@functools.cache
def code_of(size: str, layers: int) -> dict[str, Any]:
    command = [sys.executable, "-W", "ignore", "-m", "tests.training.inductor_code"]
    done = subprocess.run([*command, size, str(layers)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("size", SIZES)
def test_gradients_are_added_in_a_fixed_order(size: str) -> None:
    found = code_of(size, 2)
    assert {each["atomics"] for each in found.values()} == {0}
    calls = found["backward"]["calls"]
    assert calls["transformer.sentence_attention_gradient.default"] == 3 * 2
    assert calls["transformer.table_gradient.default"] == 2


@pytest.mark.parametrize("size", SIZES)
def test_fused_operations_keep_to_their_bytes(size: str) -> None:
    """Of six layers: those of one, and five times what the second adds."""
    one, two = (
        sum(each["gigabytes"]["fused"] for each in code_of(size, layers).values())
        for layers in (1, 2)
    )
    assert one + 5 * (two - one) <= BUDGETS[size]
