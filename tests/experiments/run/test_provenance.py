"""The commit that a result names."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from experiments.records import provenance


def test_the_commit_is_found_without_writing_to_the_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def git(*arguments: str) -> str:
        identity = ["-c", "user.name=me", "-c", "user.email=me@example.org"]
        command = ["git", *identity, *arguments]
        return subprocess.run(
            command, cwd=tmp_path, check=True, capture_output=True, text=True
        ).stdout.strip()

    source = tmp_path / "source.py"
    source.write_text("one = 1\n")
    git("init")
    git("add", "source.py")
    git("commit", "--message=first")
    monkeypatch.setattr(provenance, "__file__", str(source))
    find = provenance.commit.__wrapped__
    os.utime(source, (0, 0))  # what git would note in its index, under a lock
    index = (tmp_path / ".git" / "index").read_bytes()
    assert find() == git("rev-parse", "HEAD")[:12]
    assert (tmp_path / ".git" / "index").read_bytes() == index
    source.write_text("one = 2\n")
    assert find() == git("rev-parse", "HEAD")[:12] + "-dirty"
    assert (tmp_path / ".git" / "index").read_bytes() == index
