"""Surroundings of every test: an empty cache, no network for W&B, one thread."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path

# The bits of a result depend on the number of threads; torch reads this when it is imported.
os.environ["OMP_NUM_THREADS"] = "1"
os.fsync = lambda fd: None  # takes much of the time, and is for power cuts

_SHARED = Path(__file__).parents[2] / "shared"
# Data that the tests may use but do not need.
for _variable, _folder in (
    ("DATA_MIRROR", "mirror"),
    ("DATA_FILES", "data"),
    ("SACREBLEU", "sacrebleu"),
):
    if (_SHARED / _folder).is_dir():
        os.environ.setdefault(_variable, str(_SHARED / _folder))

import pytest  # noqa: E402
import torch  # noqa: E402
from hypothesis import HealthCheck, settings  # noqa: E402

from tests.browser import browser  # noqa: E402  # a fixture
from tests.samples import TINY_MODEL, number_pairs, tiny, write_corpus  # noqa: E402
from transformer import variant  # noqa: E402
from transformer.config import Config, Corpus  # noqa: E402
from transformer.data.corpora.folders import folder_corpus  # noqa: E402
from transformer.data.vocabulary import Vocabulary, train_vocabulary  # noqa: E402

__all__ = ["browser"]

collect_ignore = ["gpu"]  # run by make test-gpu

torch.set_num_threads(1)
# On a busy machine any example may take long.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


@pytest.fixture(scope="session")
def _figures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "figures"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(autouse=True)
def _own_surroundings(
    tmp_path_factory: pytest.TempPathFactory, _figures: Path, monkeypatch: pytest.MonkeyPatch
):
    cache = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("DATA_CACHE", str(cache))
    monkeypatch.delenv("COLUMNS", raising=False)  # pytest-xdist sets it: printed lines stay whole
    (cache / "figures").symlink_to(_figures)  # holds one script, which takes seconds to bundle
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    torch.default_generator.manual_seed(0)  # torch.manual_seed takes a millisecond without a GPU
    hangup = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # ignored if nohup started the tests
    yield
    signal.signal(signal.SIGHUP, hangup)


@pytest.fixture
def set_threads() -> Iterator[Callable[[int], None]]:
    """Set torch's number of threads for one test."""
    yield torch.set_num_threads
    torch.set_num_threads(1)


@pytest.fixture
def files_corpus(tmp_path: Path) -> Corpus:
    """A user's own files: numbers in words, which German names in the reverse order."""
    return folder_corpus(write_corpus(tmp_path / "numbers"))


@pytest.fixture
def tiny_config(files_corpus: Corpus) -> Config:
    """A whole configuration over ``files_corpus`` that takes a few milliseconds a step."""
    return tiny(files_corpus)


@pytest.fixture(scope="session")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> Vocabulary:
    """Of numbers in words, as large as that of the tiny model."""
    path = tmp_path_factory.mktemp("vocabulary") / "v.model"
    train_vocabulary(chain(*number_pairs(29, seed=7)), TINY_MODEL.vocab_size, path)
    return Vocabulary(path)


@pytest.fixture(autouse=True)
def _nothing_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test stands for a process, which keeps the classes that it has loaded, and the folders
    of their files on its path.
    """
    monkeypatch.setattr(variant, "_LOADED", {})
    monkeypatch.setattr(sys, "path", [*sys.path])
