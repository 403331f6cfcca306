"""Serve the dashboard's page, reports and scripts."""

from __future__ import annotations

import errno
import gzip
import ipaddress
import signal
import socket
import sys
import webbrowser
from collections.abc import Sequence
from functools import cache, partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from ablations.dashboard.page import TEMPLATES, Page, find_directories
from ablations.report.layout import script_hashes
from experiments.figures.render import script
from experiments.records.progress import stop_signals
from transformer.errors import InputError

_MOST_PORTS = 50
_ASSETS = {
    "/dashboard.css": "text/css",
    "/dashboard.js": "text/javascript",
    "/vega.js": "text/javascript",
}


def serve(directories: Sequence[Path], *, host: str, port: int, open_browser: bool) -> int:
    """Serve the dashboard of ``directories``, or of all below ``runs``, until a signal ends it.

    Returns:
        The exit code: 128 plus the signal.

    Raises:
        InputError: if a directory has nothing to show, or the address cannot be used.
    """
    for directory in directories:
        if next(find_directories(directory), None) is None:
            raise InputError(
                f"{directory} is neither the directory of a table or a search nor a folder of them"
            )
    server = _listen(host, port, Page(directories or [Path("runs")]))
    name = socket.gethostname() if host == "0.0.0.0" else host
    address = f"http://{name}:{server.server_port}"
    what = ", ".join(map(str, directories)) or "all in runs"
    print(f"dashboard of {what}: {address} (Ctrl-C ends it)", flush=True)
    if not _is_loopback(host):
        print("everyone who can reach this machine can read it, logs included", flush=True)
    if open_browser and not webbrowser.open(address):
        print(f"no browser was found here: open {address}", flush=True)

    def end(number: int, _frame: object) -> None:
        raise SystemExit(128 + number)

    for number in stop_signals():
        signal.signal(number, end)
    with server:
        server.serve_forever()
    return 0


def _listen(host: str, port: int, page: Page) -> Server:
    """The server at ``port``, or at the next free port, which is printed."""
    for candidate in range(port, min(port + _MOST_PORTS, 65_536)):
        try:
            server = Server((host, candidate), page)
        except (OSError, UnicodeError) as error:
            if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
                continue
            raise InputError(f"cannot listen at {host}, port {candidate} ({error})") from error
        if candidate != port:
            print(f"port {port} is in use: using {candidate}", flush=True)
        return server
    raise InputError(f"no free port from {port} on: choose another --port")


class Server(ThreadingHTTPServer):
    """Answers requests to ``address``, a host and a port."""

    def __init__(self, address: tuple[str, int], page: Page) -> None:
        loopback_only = _is_loopback(address[0])
        super().__init__(address, partial(_Handler, page=page, loopback_only=loopback_only))

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print the error, unless the viewer only disconnected."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    timeout = 120  # seconds of silence within a request, or while an answer is sent

    def __init__(self, *args: Any, page: Page, loopback_only: bool) -> None:
        self._page, self._loopback_only = page, loopback_only
        super().__init__(*args)

    def do_GET(self) -> None:
        """Answer with the page, a report, or a file that the page needs."""
        # Else another site could point its own name at this address and read the answers.
        if self._loopback_only and not _is_loopback(self.headers.get("Host", "")):
            return self.send_error(400, "this address is not this machine's own")
        path = unquote(self.path.partition("?")[0], errors="surrogateescape")
        if path == "/":
            return self._answer(self._page.html().encode(errors="replace"))
        if path in _ASSETS:
            is_vega = path == "/vega.js"
            content = script().encode() if is_vega else (TEMPLATES / path[1:]).read_bytes()
            return self._answer(content, _ASSETS[path])
        report = self._page.report(Path(path.removeprefix("/report/")))
        if report is None:
            return self.send_error(404)
        return self._answer(report)

    def _answer(self, body: bytes, media_type: str = "text/html") -> None:
        self.send_response(200)
        if "gzip" in self.headers.get("Accept-Encoding", ""):
            body = gzip.compress(body, 1)
            self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Type", f"{media_type}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Security-Policy", _policy())
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Do not print requests."""


@cache
def _policy() -> str:
    """The pages' policy: Vega compiles expressions and sets styles, reports contain scripts."""
    return (
        f"default-src 'self'; script-src 'self' 'unsafe-eval' {script_hashes()}; "
        "style-src 'self' 'unsafe-inline'; img-src 'self' data:; frame-ancestors 'none'; "
        "base-uri 'none'; form-action 'none'"
    )


def _is_loopback(host: str) -> bool:
    """Whether only this machine can reach the host, which may include a port."""
    try:
        host = urlsplit(f"//{host}").hostname or ""
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
