"""Score translations by functions of the user."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from experiments.evaluate.trained import text_of_split
from experiments.evaluate.translator import Text
from experiments.records.checksums import check_all_files, save_rescored
from experiments.records.data import recorded_data
from experiments.records.experiment import load_experiment
from experiments.records.outputs import hypotheses_path
from experiments.records.progress import stop_codes
from experiments.records.result import load_result, score_key
from transformer.data.text import read_text
from transformer.errors import in_one_line
from transformer.variant import load_function, split_name


def own_scores(
    functions: Sequence[str], text: Text, translations: Sequence[str]
) -> dict[str, float]:
    """Score translations by the user's functions, each called with sources, translations and
    references. If one fails, or gives no finite number, it has no score and a warning says why.
    """
    found: dict[str, float] = {}
    for function in functions:
        try:
            given = list(text.sources), list(translations), list(text.references)
            score = float(load_function(function)(*given))
            if not math.isfinite(score):
                raise ValueError(f"it gives {score}")
            found[score_key(function)] = score
        except (Exception, SystemExit) as error:  # the run keeps its other scores
            if isinstance(error, SystemExit) and error.code in stop_codes():
                raise  # a signal stops the run
            reason = in_one_line(error)
            name = split_name(function)[1]
            warnings.warn(f"no score by {name}, which failed: {reason}", stacklevel=2)
    return found


def score_finished(directory: Path, functions: Sequence[str]) -> list[str]:
    """Add the scores of a finished run by ``functions``, from the translations that it wrote.

    Returns:
        The functions by which it has a score now.

    Raises:
        InputError: if its files changed since it finished, or its text is not there.
    """
    result = load_result(directory)
    if result is None:
        return []
    check_all_files(directory)
    text = text_of_split(load_experiment(directory), "valid", recorded_data(directory))
    found = own_scores(functions, text, read_text(hypotheses_path(directory, "valid")))
    if found:
        scores = {**result.own_scores, **found}
        save_rescored(directory, replace(result, own_scores=scores))
    return [function for function in functions if score_key(function) in found]
