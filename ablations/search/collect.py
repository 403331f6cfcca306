"""Copy a search without its checkpoints."""

from __future__ import annotations

import warnings
from pathlib import Path

from ablations.files import CONFIRM, PLAN_FILE, SEARCH_FILE, check_free
from ablations.runs.attempts import locate
from ablations.search.search import claim_search, load_search
from ablations.search.trials import ranked, read_trials
from ablations.tables.collect import copy_finished, copy_run
from experiments.records.progress import RunState


def copy_ended(source: Path, target: Path) -> list[str]:
    """Copy the trials of ``source`` that ended and that ``target`` has not begun, and the finished
    runs that confirm the best; their names.

    One that failed, or whose files are damaged, is left out with a warning.
    """
    search = load_search(source)
    check_free(target, SEARCH_FILE)
    claim_search(target, search)
    trials = read_trials(search, source)
    for trial in trials:
        if trial.state == RunState.FAILED:
            warnings.warn(f"{trial.name}: {trial.reason}", stacklevel=2)
    # One that is just being ended still has the name of its attempt.
    ended = [x.name for x in ranked(trials) if (source / x.name).exists()]
    names = [name for name in ended if not locate(target / name).exists()]
    for name in names:
        copy_run(source / name, target / name)
    if (source / CONFIRM / PLAN_FILE).is_file():
        names += map(str, copy_finished(source / CONFIRM, target / CONFIRM))
    return names
