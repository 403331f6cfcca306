"""What tests of several folders here share."""

from __future__ import annotations

import functools

import pytest
from optuna.storages._rdb.storage import _VersionManager

from experiments.run.devices import native_precision
from tests.ablations.postgresql import postgresql

__all__ = ["postgresql"]

_get_head_version = _VersionManager.get_head_version
_ask_once = functools.cache(native_precision)
_head_versions: list[str] = []


def _read_head_version_once(manager: _VersionManager) -> str:
    if not _head_versions:
        _head_versions.append(_get_head_version(manager))
    return _head_versions[0]


@pytest.fixture(autouse=True)
def _slow_answers_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine's precision takes a process that imports torch; the version of Optuna's tables,
    which each opening of a database looks up, all scripts that lead to it.
    """
    monkeypatch.setattr("ablations.tables.plan.native_precision", _ask_once)
    monkeypatch.setattr(_VersionManager, "get_head_version", _read_head_version_once)
