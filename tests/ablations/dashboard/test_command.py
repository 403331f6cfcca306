"""The command: addresses, errors and signals."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from ablations.dashboard import command
from ablations.dashboard.command import serve
from tests.ablations.dashboard.conftest import Client
from transformer.errors import InputError


def start(folder: Path, *arguments: str) -> tuple[subprocess.Popen[str], str]:
    """Start the command in ``folder``; the process and its address."""
    process = subprocess.Popen(
        [sys.executable, "-m", "ablations", "dashboard", *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    lines: list[str] = []
    while not (found := re.search(r"http://\S+", lines[-1] if lines else "")):
        line = process.stdout.readline()
        assert line, lines
        lines.append(line)
    return process, found[0]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_while_a_request_is_open(root: Path, number: signal.Signals) -> None:
    process, address = start(root.parent, "--port", "0")
    try:
        assert "html" in Client(address).changes()[0]
        host, _, port = address.removeprefix("http://").partition(":")
        with socket.create_connection((host, int(port))) as unfinished:
            unfinished.sendall(b"GET / HTTP/1.1\r\n")
            process.send_signal(number)
            output, _ = process.communicate(timeout=20)
    finally:
        process.kill()
    assert process.returncode == 128 + number
    assert output == ""


def test_a_port_in_use(capsys: pytest.CaptureFixture[str]) -> None:
    with command._listen("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with command._listen("127.0.0.1", port) as second:
            other = second.getsockname()[1]
    assert other > port
    assert capsys.readouterr().out == f"port {port} is in use, so it is {other}\n"


def test_what_cannot_be_served(tmp_path: Path) -> None:
    def refused(*directories: Path, host: str = "127.0.0.1") -> str:
        with pytest.raises(InputError) as caught:
            serve(directories, host=host, port=0, open_browser=False)
        return str(caught.value)

    assert "nothing is neither the directory of a table" in refused(tmp_path / "nothing")
    assert "--host no.such.host.invalid" in refused(host="no.such.host.invalid")
    assert "cannot listen at 192.0.2.1" in refused(host="192.0.2.1")


def test_no_browser_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command.webbrowser, "open", lambda _address: False)
    assert not command._open("http://127.0.0.1:1")


def test_addresses_with_colons_are_bracketed() -> None:
    assert command._shown_host("::1") == "[::1]"
    assert command._shown_host("0.0.0.0") == socket.gethostname()
