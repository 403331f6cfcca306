"""A local HTTP server that fails as scripted, request by request."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Behaviour = Callable[[BaseHTTPRequestHandler, bytes], None]


def _start_of(handler: BaseHTTPRequestHandler) -> int:
    return int(handler.headers.get("Range", "bytes=0-").removeprefix("bytes=").rstrip("-"))


def _send(
    handler: BaseHTTPRequestHandler, content: bytes, start: int = 0, most: int | None = None
) -> None:
    """Announce the content from ``start`` on, and send at most so many bytes of it."""
    handler.send_response(206 if start else 200)
    if start:
        handler.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
    handler.send_header("Content-Type", "application/gzip")
    handler.send_header("Content-Length", str(len(content) - start))
    handler.end_headers()
    handler.wfile.write(content[start:][:most])


def whole(handler: BaseHTTPRequestHandler, content: bytes) -> None:
    """The content from the requested byte on."""
    start = _start_of(handler)
    if start < len(content):
        _send(handler, content, start)
    else:
        handler.send_error(416)


def cut(size: int) -> Behaviour:
    """``size`` bytes of it, then the connection is closed."""
    return lambda handler, content: _send(handler, content, _start_of(handler), size)


def stalled(size: int) -> Behaviour:
    """``size`` bytes of it, then nothing on an open connection."""

    def behave(handler: BaseHTTPRequestHandler, content: bytes) -> None:
        cut(size)(handler, content)
        time.sleep(2)

    return behave


def ignoring_ranges(
    handler: BaseHTTPRequestHandler, content: bytes, most: int | None = None
) -> None:
    """It from its start, whatever range was requested, but at most so many bytes."""
    _send(handler, content, most=most)


def endless(handler: BaseHTTPRequestHandler, content: bytes) -> None:
    """The content over and over, until nobody reads it, without its length."""
    handler.send_response(200)
    handler.end_headers()
    with suppress(OSError):
        while True:
            handler.wfile.write(content)


def other(content: bytes) -> Behaviour:
    """Other content."""
    return lambda handler, _: _send(handler, content)


def status(code: int) -> Behaviour:
    """An error without content."""
    return lambda handler, _: handler.send_error(code)


class ScriptedServer:
    """Serves the same content at every path, or files by their paths.

    It behaves for each request as the next of ``script``, or of the path's own in ``scripts``,
    says; after their end all goes well.
    """

    def __init__(self, content: bytes | Mapping[str, bytes]) -> None:
        self.content = content
        self.script: list[Behaviour] = []
        self.scripts: dict[str, list[Behaviour]] = {}
        self.ranges: list[str | None] = []
        self.paths: list[str] = []
        self.url = ""

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        """Answer one request."""
        path = handler.path
        self.ranges.append(handler.headers.get("Range"))
        self.paths.append(path)
        content = self.content if isinstance(self.content, bytes) else self.content.get(path)
        if content is None:
            handler.send_error(404)
            return
        script = self.scripts.get(path) or self.script
        behave = script.pop(0) if script else whole
        behave(handler, content)

    @contextmanager
    def running(self) -> Generator[ScriptedServer]:
        """Serve requests within this context."""
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.answer(self)

            def log_message(self, format: str, *args: object) -> None:
                """Stay silent."""

        with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
            http.daemon_threads = True
            thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
            thread.start()
            self.url = f"http://127.0.0.1:{http.server_port}"
            try:
                yield self
            finally:
                http.shutdown()
                thread.join()
