"""The command: addresses, errors and signals."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from ablations.dashboard import server
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
    line = process.stdout.readline()
    found = re.search(r"http://\S+", line)
    assert found, line
    return process, found[0]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_while_a_request_is_open(root: Path, number: signal.Signals) -> None:
    process, address = start(root.parent, "--port", "0")
    try:
        assert "4.92" in Client(address).get("/").text
        host, _, port = address.removeprefix("http://").partition(":")
        with socket.create_connection((host, int(port))) as unfinished:
            unfinished.sendall(b"GET / HTTP/1.1\r\n")
            process.send_signal(number)
            output, _ = process.communicate(timeout=20)
    finally:
        process.kill()
    assert (process.returncode, output) == (128 + number, "")


@pytest.mark.parametrize("host", ["localhost", "0.0.0.0"])
def test_what_it_says(
    root: Path, host: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("webbrowser.open", "signal.signal"):
        monkeypatch.setattr(f"ablations.dashboard.server.{name}", lambda *_: False)
    monkeypatch.setattr(server.Server, "serve_forever", lambda _: None)
    server.serve([root], host=host, port=0, open_browser=True)
    said = capsys.readouterr().out
    name = socket.gethostname() if host == "0.0.0.0" else host
    assert f"dashboard of {root}: http://{name}:" in said
    assert f"no browser was found here: open http://{name}:" in said
    assert ("everybody who can reach this machine can read it" in said) == (host == "0.0.0.0")


def test_what_cannot_be_served(tmp_path: Path) -> None:
    def refused(*directories: Path, host: str = "127.0.0.1", port: int = 0) -> str:
        with pytest.raises(InputError) as caught:
            server.serve(directories, host=host, port=port, open_browser=False)
        return str(caught.value)

    assert "nothing is neither the directory of a table" in refused(tmp_path / "nothing")
    assert "cannot listen at no.such.host.invalid" in refused(host="no.such.host.invalid")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"cannot listen at 127.0.0.1, port {port} (" in refused(port=port)
