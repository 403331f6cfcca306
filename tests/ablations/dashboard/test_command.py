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
    assert (process.returncode, output) == (128 + number, "")


@pytest.mark.parametrize(
    ("host", "shown"),
    [("::1", "http://[::1]:"), ("0.0.0.0", f"http://{socket.gethostname()}:")],
)
def test_what_it_says(
    root: Path,
    host: str,
    shown: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if host == "::1" and not socket.has_dualstack_ipv6():
        pytest.skip("this machine has no IPv6")
    for name in ("webbrowser.open", "signal.signal"):
        monkeypatch.setattr(f"ablations.dashboard.server.{name}", lambda *_: False)
    monkeypatch.setattr(server.Server, "serve_forever", lambda _: None)
    with server._listen(host, 0) as taken:
        server.serve([root], host=host, port=taken.getsockname()[1], open_browser=True)
    said = capsys.readouterr().out
    assert "is in use, so it is " in said and shown in said
    assert "no browser was found here: open http://" in said
    assert ("everybody who can reach this machine can read it" in said) == (host == "0.0.0.0")


def test_what_cannot_be_served(tmp_path: Path) -> None:
    def refused(*directories: Path, host: str = "127.0.0.1", port: int = 0) -> str:
        with pytest.raises(InputError) as caught:
            server.serve(directories, host=host, port=port, open_browser=False)
        return str(caught.value)

    assert "nothing is neither the directory of a table" in refused(tmp_path / "nothing")
    assert "cannot listen at no.such.host.invalid" in refused(host="no.such.host.invalid")
    assert "cannot listen at 192.0.2.1" in refused(host="192.0.2.1")
    assert "no port from 99999 on is free" in refused(port=99_999)
