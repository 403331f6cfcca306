"""A database's password reaches no file, no output and no command line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy.engine import make_url

from ablations.__main__ import main
from ablations.runner.storage_url import display_url
from tests.ablations.postgresql import Server
from tests.ablations.storm.place import make_place


@pytest.mark.parametrize(
    "command",
    ["run table3 --scale quick", "worker out", "status out", "benchmark"],
    ids=lambda command: command.split()[0],
)
@pytest.mark.parametrize("url", ["me:geheim7@host/db", "me@host/db?password=geheim7"])
def test_a_password_on_the_command_line_is_refused(
    command: str,
    url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = [*command.split(), "--storage", f"postgresql://{url}"]
    monkeypatch.setattr(sys, "argv", ["ablations", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr().err
    assert ended.value.code == 2 and said.count("\n") == 1
    assert "OPTUNA_STORAGE" in said and "~/.pgpass" in said and "geheim7" not in said
    assert not list(tmp_path.iterdir())


def test_a_password_after_a_mistyped_option_is_not_echoed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["run", "table3", "--scale", "quick", "--storge", "postgresql://me:geheim7@host/db"]
    monkeypatch.setattr(sys, "argv", ["ablations", *words])
    with pytest.raises(SystemExit):
        main()
    said = capsys.readouterr().err
    assert "--storge postgresql://...@host/db" in said and "geheim7" not in said


def test_a_password_among_the_parameters_is_not_shown() -> None:
    assert "geheim7" not in display_url(make_url("postgresql://me@host/db?password=geheim7"))


@pytest.mark.slow
def test_a_password_from_the_environment_is_in_no_file(tmp_path: Path, postgresql: Server) -> None:
    place = make_place(tmp_path, steps=2, every=1, step_seconds=None)
    url = make_url(postgresql.create("password"))
    assert url.password
    command = place.command(
        *("run", place.table, "--scale", "tiny", "--rows", "base", "--directory", place.out)
    )
    environment = place.environment(
        OPTUNA_STORAGE=url.render_as_string(hide_password=False), WANDB_MODE="offline"
    )
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, check=False)
    assert done.returncode == 0, done
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    tracked = [path.read_bytes() for path in files if path.suffix == ".wandb"]
    assert len(tracked) == 2 and all(b"--rows" in content for content in tracked)  # in clear
    secret = url.password.encode()
    assert secret not in done.stdout + done.stderr
    assert not [path for path in files if secret in path.read_bytes()]
