"""Score finished runs with the user's own measures."""

from __future__ import annotations

import warnings
from collections.abc import Container

from ablations.folder import TableFolder
from experiments.records.outputs import hypotheses_path
from experiments.records.result import score_key
from transformer.errors import InputError


def score_finished_runs(folder: TableFolder, names: Container[str]) -> int:
    """Add missing scores by the table's own measures to the finished runs among ``names``, from
    their translations; return how many runs got one. Runs of a collection stay as they are.

    A function that fails once is not called for the other runs.
    """
    left = {score_key(measure.function): measure.function for measure in folder.plan.own_measures}
    count = 0
    for run in folder.runs() if left else ():
        result = run.result
        if result is None or run.name not in names:
            continue
        missing = {key: left[key] for key in left if key not in result.own_scores}
        if not missing or not hypotheses_path(run.directory, "valid").is_file():
            continue
        from experiments.evaluate.own_measures import score_finished  # imports torch

        try:
            found = score_finished(run.directory, list(missing.values()))
        except InputError as error:
            warnings.warn(f"{run.name} is not scored: {error}", stacklevel=2)
            continue
        count += bool(found)
        for key, function in missing.items():
            if function not in found:
                del left[key]
    return count
