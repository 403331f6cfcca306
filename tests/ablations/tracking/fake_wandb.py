"""A stand-in for W&B's server: it keeps what its client posts, and answers just enough."""

from __future__ import annotations

import http.server
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

OPERATION = re.compile(r"(?:query|mutation)\s+(\w+)")
ENTITY = "ada"


@dataclass
class Upload:
    """What has arrived of one run: what created it, its history, its files and its end."""

    created: dict[str, Any] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)
    files: set[str] = field(default_factory=set)
    complete: bool = False


class FakeWandb:
    def __init__(self) -> None:
        self.operations: list[str] = []
        self.url = ""


def handler(fake):
    class H(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        def log_message(self, *a): pass
        def _answer(self, body, status=200):
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)
        def do_HEAD(self): 
            print("HEAD", self.path); self._answer({})
        def do_GET(self):
            print("GET", self.path); self._answer({})
        def do_PUT(self):
            n = int(self.headers.get("Content-Length") or 0); b=self.rfile.read(n)
            print("PUT", self.path, n, b[:150]); self._answer({})
        def do_POST(self):
            n = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(n)
            if self.headers.get("Content-Encoding") == "gzip":
                import gzip; body = gzip.decompress(body)
            if self.path == "/graphql":
                q = json.loads(body)
                print("GQL", q.get("operationName"), q["query"][:1500], json.dumps(q.get("variables"))[:600])
                self._answer({"data": {}})
            else:
                print("POST", self.path, body[:600]); self._answer({})
    return H

if __name__ == "__main__":
    fake = FakeWandb()
    s = http.server.ThreadingHTTPServer(("127.0.0.1", 8765), handler(fake))
    s.serve_forever()
