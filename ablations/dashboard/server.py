"""Serve the dashboard's pages, changes and files."""

from __future__ import annotations

import errno
import ipaddress
import json
import re
import signal
import socket
import sys
import webbrowser
from collections.abc import Sequence
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ablations.dashboard.directories import TEMPLATES, Directories, Shown, find_directories
from ablations.files import HTML_FILE
from ablations.report.layout import render
from ablations.report.write import script_hashes
from experiments.figures.render import script
from experiments.records.progress import stop_signals
from transformer.errors import InputError

TITLE = "Ablations"
_MOST_PORTS = 50
# Vega compiles its expressions, and sets styles; nothing else may run or be loaded.
_POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
_ASSETS = {"dashboard.css": "text/css", "dashboard.js": "text/javascript"}


def serve(directories: Sequence[Path], *, host: str, port: int, open_browser: bool) -> int:
    """Serve the dashboard of ``directories``, or of all below ``runs``, until a signal ends it.

    Returns:
        128 plus the signal

    Raises:
        InputError: if a directory has nothing to show, or the address cannot be used.
    """
    for directory in directories:
        if next(find_directories(directory), None) is None:
            raise InputError(
                f"{directory} is neither the directory of a table or a search nor a folder of them"
            )
    listening = _listen(host, port)
    name = socket.gethostname() if host in ("0.0.0.0", "::", "") else host
    address = f"http://{f'[{name}]' if ':' in name else name}:{listening.getsockname()[1]}"
    what = ", ".join(map(str, directories)) or "all in runs"
    print(f"dashboard of {what}: {address} (Ctrl-C ends it)", flush=True)
    if not _is_loopback(host):
        print("everybody who can reach this machine can read it, logs included", flush=True)
    if open_browser and not webbrowser.open(address):
        print(f"no browser was found here: open {address}", flush=True)

    def end(number: int, _frame: object) -> None:
        raise SystemExit(128 + number)

    for number in stop_signals():
        signal.signal(number, end)
    shown = Directories(directories or [Path("runs")])
    with Server(listening, shown, loopback_only=_is_loopback(host)) as server:
        server.serve_forever()
    return 0


def _listen(host: str, port: int) -> socket.socket:
    """Listen at ``port``, or at the next free one; the line that says so is printed.

    Raises:
        InputError: if the address cannot be used.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for candidate in range(port, min(port + _MOST_PORTS, 65_536)):
        try:
            listening = socket.create_server((host, candidate), family=family)
        except (OSError, OverflowError, UnicodeError) as error:
            if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
                continue
            raise InputError(f"cannot listen at {host}, port {candidate} ({error})") from error
        if candidate != port:
            print(f"port {port} is in use, so it is {candidate}", flush=True)
        return listening
    raise InputError(f"no port from {port} on is free: choose a --port")


class Server(ThreadingHTTPServer):
    """Answers the requests for ``directories`` that reach ``listening``, a bound socket.

    Args:
        loopback_only: refuse requests under other names than this machine's own. Another site
            could otherwise give its name to this address and read the answers.
    """

    def __init__(
        self, listening: socket.socket, directories: Directories, *, loopback_only: bool
    ) -> None:
        handler = partial(_Handler, directories=directories, loopback_only=loopback_only)
        super().__init__(listening.getsockname()[:2], handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listening

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print the error, unless the viewer has only left."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    timeout = 120  # seconds, of silence within a request and to send an answer

    def __init__(self, *args: Any, directories: Directories, loopback_only: bool) -> None:
        self._directories, self._loopback_only = directories, loopback_only
        super().__init__(*args)

    def do_GET(self) -> None:
        """Answer with a page, a report, what has changed, or an asset."""
        if self._loopback_only and not _is_loopback(_host_name(self.headers.get("Host", ""))):
            return self.send_error(400, "this address is not this machine's own")
        path, _, query = self.path.partition("?")
        match path.split("/")[1:]:
            case [""]:
                self._page(TITLE, self._directories.read()[1], "/changes")
            case ["changes"]:
                self._changes(query)
            case ["assets", "vega.js"]:
                self._answer(script(), "text/javascript", cache="max-age=3600")
            case ["assets", name] if name in _ASSETS:
                self._answer((TEMPLATES / name).read_bytes(), _ASSETS[name], cache="no-cache")
            case ["d", name, *rest] if found := self._directories.read(name)[1]:
                match rest:
                    case []:
                        self._page(f"{name} · {TITLE}", found, f"/d/{name}/changes")
                    case ["changes"]:
                        self._changes(query, name)
                    case ["report"]:
                        self._report(found[0])
                    case _:
                        self.send_error(404)
            case ["d", _, *_]:
                self.send_error(404, "there is no table and no search of this name")
            case _:
                self.send_error(404)

    do_HEAD = do_GET

    def _page(self, title: str, shown: Sequence[Shown], changes: str, status: int = 200) -> None:
        """A page of ``shown`` that polls the address ``changes``; without it only its title."""
        page = render(
            TEMPLATES / "page.html.j2",
            layout="html.j2",
            title=title,
            directories=[x.html for x in shown],
            roots=", ".join(map(str, self._directories.roots)),
            changes=changes,
        )
        self._answer(page, status=status)

    def _changes(self, query: str, name: str | None = None) -> None:
        """The parts that are newer than the version that the page has, and their version."""
        has = re.fullmatch(r"since=(\d{1,15})", query)
        version, shown = self._directories.read(name)
        since = int(has[1]) if has and int(has[1]) <= version else 0
        parts = ", ".join(
            f'{{"name": {json.dumps(x.name)}, "part": {json.dumps(key)}, "value": {part.text}}}'
            for x in shown
            for key, part in x.parts.items()
            if part.version > since
        )
        self._answer(f'{{"version": {version}, "parts": [{parts}]}}', "application/json")

    def _report(self, shown: Shown) -> None:
        """The report in a directory, as it was last written."""
        try:
            page = (shown.directory / HTML_FILE).read_bytes()
        except OSError:
            why = "there is no report yet: python -m ablations report writes it"
            return self.send_error(404, why)
        allowed = _POLICY.replace("script-src 'self'", f"script-src 'self' {script_hashes()}")
        self._answer(page, policy=allowed)

    def _answer(
        self,
        content: str | bytes,
        media_type: str = "text/html",
        *,
        status: int = HTTPStatus.OK,
        cache: str = "no-store",
        policy: str = _POLICY,
    ) -> None:
        body = content.encode() if isinstance(content, str) else content
        self.send_response(status)
        self.send_header("Content-Type", f"{media_type}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Security-Policy", policy)
        self.send_header("Cache-Control", cache)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refuse a request with a page that says why."""
        self._page(message or HTTPStatus(code).phrase, [], "", code)

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing for a request."""


def _host_name(header: str) -> str:
    """The name in a ``Host`` header, without its port; empty if it has none."""
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return ""


def _is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
