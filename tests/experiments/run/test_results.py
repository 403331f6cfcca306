"""A run's result is read back as it was, and one of another version refused."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from experiments.records.result import load_result, save_result
from transformer.errors import InputError


def test_a_result_comes_back_as_it_was(finished: Path, tmp_path: Path):
    assert load_result(tmp_path) is None
    result = load_result(finished)
    assert result is not None
    for changed in (result, dataclasses.replace(result, test_bleu=None, perplexity=float("inf"))):
        save_result(tmp_path, changed)
        assert load_result(tmp_path) == changed


def test_measures_that_only_another_version_has_are_skipped(finished: Path, tmp_path: Path):
    written = json.loads((finished / "result.json").read_text())
    (tmp_path / "result.json").write_text(json.dumps(written | {"blue": 1.0}))
    assert load_result(tmp_path) == load_result(finished)


@pytest.mark.parametrize(
    ("changes", "said"), [({"perplexity": None}, "perplexity"), ({"steps": "many"}, "steps")]
)
def test_a_result_of_another_version_is_refused_with_its_file_and_field(
    changes: dict[str, object], said: str, finished: Path, tmp_path: Path
):
    written = json.loads((finished / "result.json").read_text())
    (tmp_path / "result.json").write_text(json.dumps(written | changes))
    with pytest.raises(
        InputError, match=rf"result\.json does not fit this version.*{said}.*; remove the file"
    ):
        load_result(tmp_path)
