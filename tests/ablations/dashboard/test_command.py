"""The command: addresses, errors and signals."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from ablations.dashboard.server import serve
from tests.ablations.dashboard.conftest import get
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


@pytest.mark.parametrize(
    ("number", "host"), [(signal.SIGINT, "127.0.0.1"), (signal.SIGTERM, "0.0.0.0")]
)
def test_a_signal_ends_it_while_a_request_is_open(
    root: Path, number: signal.Signals, host: str
) -> None:
    process, address = start(root.parent, "--port", "0", "--host", host)
    try:
        if host == "0.0.0.0":
            assert process.stdout is not None
            everybody = "everybody who can reach this machine can read it, logs included\n"
            assert process.stdout.readline() == everybody
        port = address.rpartition(":")[2]
        assert address == f"http://{host if host[0] == '1' else socket.gethostname()}:{port}"
        assert "4.92" in get(f"http://127.0.0.1:{port}").text
        with socket.create_connection(("127.0.0.1", int(port))) as unfinished:
            unfinished.sendall(b"GET / HTTP/1.1\r\n")
            process.send_signal(number)
            output, _ = process.communicate(timeout=20)
    finally:
        process.kill()
    assert (process.returncode, output) == (128 + number, "")


def test_what_cannot_be_served(tmp_path: Path) -> None:
    def refused(*directories: Path, host: str = "127.0.0.1", port: int = 0) -> str:
        with pytest.raises(InputError) as caught:
            serve(directories, host=host, port=port, open_browser=False)
        return str(caught.value)

    assert "nothing is neither the directory of a table" in refused(tmp_path / "nothing")
    assert "cannot listen at no.such.host.invalid" in refused(host="no.such.host.invalid")
    with socket.create_server(("127.0.0.1", 65_535)):
        assert "no port from 65535 on is free: choose another --port" in refused(port=65_535)


def test_a_port_in_use_is_replaced_by_the_next_free_one(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("ablations.dashboard.server.Server.serve_forever", lambda _: None)
    monkeypatch.setattr("ablations.dashboard.server.stop_signals", list)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert serve([root], host="127.0.0.1", port=port, open_browser=False) == 0
    first, second = capsys.readouterr().out.splitlines()
    found = re.fullmatch(rf"port {port} is in use, so it is (\d+)", first)
    assert found and int(found[1]) > port and f"http://127.0.0.1:{found[1]} " in second
