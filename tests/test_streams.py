"""Command lines whose standard streams are closed, full, unread or of few characters."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

LIST = "-m ablations list"


@pytest.mark.parametrize(
    ("command", "redirected", "code"),
    [
        (LIST, "<&- >&- 2>&-", 0),
        (LIST, "| sleep 0", 141),
        (LIST, "> /dev/full", 2),
        ("-m ablations status a", "2> /dev/full", 2),
        ("-m ablations status NAM\u00c9", "PYTHONIOENCODING=ascii", 2),
    ],
)
def test_a_command_ends_as_it_should(command: str, redirected: str, code: int) -> None:
    before, after = (f"env {redirected} ", "") if "=" in redirected else ("", redirected)
    line = f"{before}{sys.executable} {command} {after}; exit ${{PIPESTATUS[0]}}"
    environment = {**os.environ, "PYTHONUNBUFFERED": "1" if "sleep" in after else ""}
    done = subprocess.run(["bash", "-c", line], capture_output=True, check=False, env=environment)
    assert done.returncode == code, done
    assert b"Traceback" not in done.stderr and b"Exception ignored" not in done.stderr
    assert done.stderr.count(b"\n") <= 1


def test_a_process_of_ours_has_the_streams_that_were_closed() -> None:
    code = (
        "import subprocess, sys; from experiments.command_line import prepare_streams; "
        "prepare_streams(); print('unread'); sys.stderr.write('x'); assert not sys.stdin.read(); "
        "sys.exit(subprocess.call([sys.executable, '-c', 'import sys; sys.stderr.write(str(1))']))"
    )
    line = f'{sys.executable} -c "{code}" <&- >&- 2>&-'
    assert subprocess.run(["bash", "-c", line], check=False).returncode == 0
