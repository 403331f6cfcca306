"""The folder of a search."""

from __future__ import annotations

import warnings
from pathlib import Path

from ablations.files import CONFIRM, PLAN_FILE, SEARCH_FILE, check_free
from ablations.folder.base import Folder, Record
from ablations.folder.table import TableFolder
from ablations.search.search import claim_search, load_search
from ablations.search.trials import SearchTrial, make_trial, ranked
from experiments.records.progress import RunState
from experiments.records.run import Run
from transformer.errors import InputError
from transformer.files import within


class SearchFolder(Folder):
    """The trials of a search, and the table inside it that trains the best ones again."""

    def __init__(self, path: Path) -> None:
        self.path, self.plan = path, load_search(path)
        self.names = self.plan.names
        self.title = f"search {self.plan.space} at scale {self.plan.scale}"
        self.labels = {"search": self.plan.space, "scale": self.plan.scale}
        self.configs = {"": self.plan.base}
        self.parameters = [each.name for each in self.plan.parameters]

    def trial(self, name: str) -> SearchTrial:
        """A trial as its newest attempt left it; it counts as failed if a file cannot be used."""
        run = self.read(name)
        try:
            self._check(run)
            return make_trial(self.plan, run)
        except (InputError, OSError) as error:
            return SearchTrial(name=name, state=RunState.FAILED, reason=f"left out: {error}")

    def trials(self) -> tuple[SearchTrial, ...]:
        """All trials, begun or not."""
        return tuple(map(self.trial, self.names))

    @property
    def parts(self) -> list[Folder]:
        return [self] if self.confirmation is None else [self, self.confirmation]

    @property
    def confirmation(self) -> TableFolder | None:
        """The table that trains the best trials again, if it was asked for."""
        path = within(self.path, CONFIRM)
        return TableFolder(path) if (path / PLAN_FILE).is_file() else None

    def _check(self, run: Run) -> None:
        if run.experiment is None:
            return
        if not self.plan.contains(run.experiment.config):
            raise InputError(f"{run.directory} is not a trial of this search")
        super()._check(run)

    def _share(self, into: Path) -> dict[str, Run]:
        check_free(into, SEARCH_FILE)
        claim_search(into, self.plan)
        trials = self.trials()
        for trial in trials:
            if trial.state == RunState.FAILED:
                warnings.warn(f"{trial.name}: {trial.reason}", stacklevel=3)
        runs = {trial.name: self.read(trial.name) for trial in ranked(trials)}
        # A trial that is just ending still has the name of its attempt.
        ended = {name: run for name, run in runs.items() if run.is_published}
        found = SearchFolder(into).without_begun(ended)
        if (again := self.confirmation) is not None:
            confirming = again._share(into / CONFIRM)
            found |= {f"{CONFIRM}/{name}": run for name, run in confirming.items()}
        return found

    def _who(self, run: Run) -> Record:
        return {"trial": run.name}

    def _settings(self, run: Run) -> Record:
        values = {} if run.experiment is None else self.plan.values(run.experiment.config)
        return {name: values.get(name) for name in self.parameters}
