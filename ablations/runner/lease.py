"""One leader at a time: the worker that holds the lease in the database maintains the queue.

Optuna has no such lock. A row names the holder and counts its renewals. A worker that sees the same
count for the whole grace period by its own clock takes the row over by compare-and-swap. No two
clocks are compared, a holder that comes back from a pause finds its row changed, and an outage of
the database delays everybody alike.
"""

from __future__ import annotations

import time
from contextlib import suppress

from sqlalchemy import (
    Column,
    Engine,
    Integer,
    MetaData,
    String,
    Table,
    delete,
    insert,
    select,
    update,
)
from sqlalchemy.exc import IntegrityError, OperationalError, ProgrammingError

from ablations.runner.identity import is_gone

_LEASES = Table(
    "ablations_leases",
    MetaData(),
    Column("study", String(255), primary_key=True),
    Column("holder", String(255), nullable=False),
    Column("beat", Integer, nullable=False),
)


class Lease:
    """A worker's view of the lease of one study.

    Args:
        engine: of the storage
        study: its name
        worker: this worker's name
        grace_seconds: after which another worker may take over a lease that is not renewed
    """

    def __init__(self, engine: Engine, study: str, worker: str, grace_seconds: float) -> None:
        self._engine, self._study = engine, study
        self._worker, self._grace = worker, grace_seconds
        self._seen: tuple[str, int] | None = None
        self._since = 0.0
        # Of two workers that find no table, one creates it and the other one fails.
        with suppress(IntegrityError, OperationalError, ProgrammingError):
            _LEASES.create(engine, checkfirst=True)

    def hold(self) -> bool:
        """Renew the lease or take a free one; return whether this worker holds it."""
        with self._engine.begin() as connection:
            row = connection.execute(
                select(_LEASES.c.holder, _LEASES.c.beat).where(_LEASES.c.study == self._study)
            ).one_or_none()
        if row is None:
            return self._make()
        found = (str(row.holder), int(row.beat))
        if found[0] == self._worker or self._is_free(found):
            return self._swap(found, self._worker)
        return False

    def release(self) -> None:
        """Let another worker take it at once."""
        if self._seen is not None and self._seen[0] == self._worker:
            self._swap(self._seen, "")

    def delete(self) -> None:
        """Remove it, when nobody works on the study any more."""
        with self._engine.begin() as connection:
            connection.execute(delete(_LEASES).where(_LEASES.c.study == self._study))

    def _is_free(self, found: tuple[str, int]) -> bool:
        if found != self._seen:
            self._seen, self._since = found, time.monotonic()
        return not found[0] or is_gone(found[0]) or time.monotonic() - self._since > self._grace

    def _swap(self, found: tuple[str, int], holder: str) -> bool:
        holder_before, beat = found
        with self._engine.begin() as connection:
            changed = connection.execute(
                update(_LEASES)
                .where(_LEASES.c.study == self._study)
                .where(_LEASES.c.holder == holder_before)
                .where(_LEASES.c.beat == beat)
                .values(holder=holder, beat=beat + 1)
            ).rowcount
        if changed:
            self._seen, self._since = (holder, beat + 1), time.monotonic()
        return bool(changed)

    def _make(self) -> bool:
        try:
            with self._engine.begin() as connection:
                connection.execute(
                    insert(_LEASES).values(study=self._study, holder=self._worker, beat=1)
                )
        except IntegrityError:
            return False  # another was first
        self._seen = (self._worker, 1)
        return True
