"""The count without a model agrees with the model's own."""

from __future__ import annotations

import pytest

from ablations.tables.table3 import TABLE
from tests.samples import TINY_MODEL
from transformer.config import ModelConfig
from transformer.evaluation.sizes import trained_numbers
from transformer.model.encoder_decoder import count_parameters

ROWS = {row.name: TABLE.configure(row).model for row in TABLE.rows if row.name[0] in "ABCE"}


@pytest.mark.parametrize("config", [TINY_MODEL, *ROWS.values()], ids=["tiny", *ROWS])
def test_it_is_the_models_own_count(config: ModelConfig) -> None:
    assert trained_numbers(config) == count_parameters(config)
