"""Add the commit to wheels and source distributions: where they are installed there is no git."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

sys.path.insert(0, str(Path(__file__).parent))  # a build's front end leaves it out

from experiments.records.provenance import COMMIT_FILE, commit


def _add_commit(tree: Path) -> None:
    (tree / "experiments" / "records" / COMMIT_FILE).write_text(f"{commit()}\n", "utf-8")


class BuildWithCommit(build_py):
    """Copies the packages, but not of an editable install, whose files are those of the clone."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            _add_commit(Path(self.build_lib))


class SourcesWithCommit(sdist):
    """Collects the files of a source distribution, from which a wheel may be built later."""

    def make_release_tree(self, base_dir: str, files: Iterable[str]) -> None:
        super().make_release_tree(base_dir, files)
        _add_commit(Path(base_dir))


setup(cmdclass={"build_py": BuildWithCommit, "sdist": SourcesWithCommit})
