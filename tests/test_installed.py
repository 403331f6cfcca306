"""The programs where there is no clone: as scripts, from a wheel, and in an image."""

from __future__ import annotations

import fnmatch
import json
import re
import shlex
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

import pytest

import attention_is_all_you_need as entry
from ablations.cli import PROGRAM as ABLATIONS
from experiments.command_line import Program
from experiments.records import provenance
from tests.samples import write_corpus

ROOT = Path(__file__).parents[1]
SCRIPTS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["scripts"]


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_has_its_own_name_and_completes_its_commands(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module, _, function = SCRIPTS[name].partition(":")
    assert module == entry.__name__ and callable(getattr(entry, function))
    monkeypatch.setattr(sys, "argv", [f"/somewhere/bin/{name}"])
    program = Program(name, "A script.", "go")

    @program.command("go")
    def go() -> None:
        """Go."""
        print("gone")

    assert program.commands == [go.__name__]
    assert program.run(["go"]) == 0 and program.run(["stay"]) == 2
    said = capsys.readouterr()
    assert said.out == "gone\n" and said.err.startswith(f"{name}: error: ")
    assert program.app["--install-completion"].help


def test_the_shell_completes_all_commands_and_their_options() -> None:
    script = ABLATIONS.app.generate_completion(prog_name="ablations", shell="bash")
    for word in (*ABLATIONS.commands, "--seeds", "--sampler"):
        assert re.search(rf'[ "(]{re.escape(word.replace("_", "-"))}[ ")]', script), word


@pytest.mark.parametrize("name", ["experiments/__init__.py", "transformer.py"])
def test_another_package_of_our_name_is_refused_in_a_line(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).touch()
    done = subprocess.run(
        [sys.executable, "-m", "ablations", "list"], cwd=tmp_path, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1 and str(tmp_path / name) in done.stderr


def test_only_what_python_would_import_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "ablations").mkdir()  # a folder without __init__.py comes last in Python
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(ROOT), *sys.path])
    entry._prepare_imports("experiments", "ablations")
    assert sys.path[0] == str(ROOT) and sys.path[-1] == str(tmp_path)
    assert entry._other("ablations", [str(tmp_path)]) == tmp_path / "ablations"
    (tmp_path / "ablations" / "__init__.py").touch()
    entry._prepare_imports("transformer", "experiments")
    with pytest.raises(SystemExit, match="2"):
        entry._prepare_imports("experiments", "ablations")
    assert "PYTHONSAFEPATH" in capsys.readouterr().err


def test_without_git_the_commit_is_what_the_wheel_keeps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provenance, "__file__", str(tmp_path / "provenance.py"))
    assert provenance.commit.__wrapped__() == "unknown"
    (tmp_path / provenance.COMMIT_FILE).write_text("0123456789ab\n")
    assert provenance.commit.__wrapped__() == "0123456789ab"


@pytest.mark.slow
def test_a_wheel_lists_trains_and_records_its_commit(tmp_path: Path) -> None:
    def call(*words: object, where: Path = tmp_path) -> str:
        command = [str(word) for word in words]
        done = subprocess.run(command, cwd=where, env=bare, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    # A user and an environment of their own, which sees the libraries of this one.
    bare = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "WANDB_MODE": "offline"}
    pip = [sys.executable, "-m", "pip"]
    clone, wheels, venv = tmp_path / "clone", tmp_path / "wheels", tmp_path / "venv"
    call("git", "clone", "--quiet", "--depth=1", f"file://{ROOT}", clone)
    options = ["--quiet", "--no-index", "--no-deps"]
    call(*pip, "wheel", *options, "--no-build-isolation", "--wheel-dir", wheels, clone)
    call(sys.executable, "-m", "venv", "--without-pip", venv)
    python = venv / "bin" / "python"
    call(*pip, "--python", python, "install", *options, *wheels.iterdir())
    (packages,) = venv.glob("lib/*/site-packages")
    (packages / "libraries.pth").write_text(sysconfig.get_path("purelib"))

    commit = call("git", "rev-parse", "HEAD", where=clone).strip()[:12]
    assert call(venv / "bin" / "experiments", "--version").endswith(f", commit {commit}\n")
    assert "table3: " in call(venv / "bin" / "ablations", "list")
    assert "table3: " in call(python, "-m", "ablations", "list")
    write_corpus(tmp_path / "numbers")
    train = "train files:numbers --vocab-size 61 --set max_steps=7 --log none --directory here"
    call(venv / "bin" / "experiments", *train.split())
    result = json.loads((tmp_path / "here" / "result.json").read_text("utf-8"))
    assert result["commit"] == commit


def test_the_image_is_made_of_what_there_is() -> None:
    text = re.sub(r"\\\n", " ", (ROOT / "Dockerfile").read_text("utf-8"))
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    kinds = [line.split(maxsplit=1) for line in lines]
    known = {"FROM", "ARG", "COPY", "RUN", "WORKDIR", "ENV", "CMD"}
    assert {kind for kind, _ in kinds} <= known and kinds[0][0] == "FROM"
    stages = re.findall(r"^FROM \S+ AS (\S+)$", text, re.MULTILINE)
    for kind, rest in kinds:
        match kind, shlex.split(rest):
            case "COPY", [source, *_, _] if source.startswith("--from="):
                assert source.removeprefix("--from=") in stages
            case "COPY", [*sources, _]:
                assert sources and all((ROOT / source).exists() for source in sources)
            case "RUN", [program, *_]:
                assert program == "pip"
            case "CMD", _:
                program, *words = json.loads(rest)
                assert program in SCRIPTS
                ABLATIONS.app.parse_args(words)
            case _:
                pass


def test_the_image_gets_all_that_git_knows() -> None:
    lines = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    files = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True).stdout
    paths = [Path(file) for file in files.splitlines()]
    assert Path("setup.py") in paths
    for line in lines:
        anywhere = line.startswith("**/")
        pattern = line.removeprefix("**/")
        found = [
            path for path in paths if fnmatch.filter(path.parts[: None if anywhere else 1], pattern)
        ]
        assert not found, line
