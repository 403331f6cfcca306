"""A stand-in for W&B's server, which keeps what arrives."""

from __future__ import annotations

import http.server
import json
import re
import threading
from collections import defaultdict
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

import pytest

ENTITY = "ada"
_OPERATION = re.compile(r"\b(?:query|mutation)\s+(\w+)")


@dataclass
class Arrived:
    """What has arrived of one run: its record, configuration and files."""

    record: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    files: set[str] = field(default_factory=set)


class FakeWandb:
    """Runs and views by name; what names the ``refused`` group or account is not taken; all
    ``requests``.
    """

    def __init__(self) -> None:
        self.runs: dict[str, Arrived] = defaultdict(Arrived)
        self.views: dict[str, dict[str, Any]] = {}
        self.url = ""
        self.refused = ""
        self.requests: list[str] = []

    def graphql(self, query: str, given: dict[str, Any]) -> Any:
        """The data of an answer; empty for what it does not know."""
        found = _OPERATION.search(query)
        return getattr(self, f"_{found[1] if found else ''}", lambda _: {})(given)

    def _Viewer(self, given: dict[str, Any]) -> Any:
        viewer = {"id": "1", "entity": ENTITY, "username": ENTITY, "flags": "{}"}
        return {"viewer": {**viewer, "teams": {"edges": []}}}

    _GetDefaultEntity = _Viewer

    def _project(self, given: dict[str, Any]) -> dict[str, Any]:
        return {"id": "p", "name": given["project"], "entity": {"id": "e", "name": given["entity"]}}

    def _UpsertBucket(self, given: dict[str, Any]) -> Any:
        run, name = self.runs[given["name"]], given["name"]
        run.record |= {key: value for key, value in given.items() if value is not None}
        run.config |= json.loads(given.get("config") or "{}")
        bucket = {"id": name, "name": name, "project": self._project(given)}
        return {"upsertBucket": {"bucket": bucket, "inserted": True}}

    def _CreateRunFiles(self, given: dict[str, Any]) -> Any:
        address = f"{self.url}/upload/{given['run']}"
        files = [{"name": x, "uploadUrl": f"{address}/{x}"} for x in given["files"]]
        return {"createRunFiles": {"runID": given["run"], "uploadHeaders": [], "files": files}}

    def _CreateArtifact(self, given: dict[str, Any]) -> Any:
        sequence = {"latestArtifact": None}
        artifact = {"id": "a", "state": "COMMITTED", "artifactSequence": sequence}
        return {"createArtifact": {"artifact": artifact}}

    def _UpsertView2(self, given: dict[str, Any]) -> Any:
        self.views[given["name"]] = given
        view = {"id": given["name"], "name": given["name"]}
        return {"upsertView": {"view": view, "inserted": True}}

    def _View(self, given: dict[str, Any]) -> Any:
        view = self.views.get(given["viewName"])
        edges = [] if view is None else [{"node": {"id": view["name"], **view}}]
        return {"project": {"allViews": {"edges": edges}}}


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    fake: FakeWandb

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

    def _answer(self, body: Any = None, status: int = 200) -> None:
        self.fake.requests.append(f"{self.command} {self.path}")
        content = json.dumps(body or {}).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def do_GET(self) -> None:
        self._answer()

    do_HEAD = do_CONNECT = do_GET

    def do_PUT(self) -> None:
        self._body()
        _, _, run, name = self.path.split("/", 3)
        self.fake.runs[run].files.add(name)
        self._answer()

    def do_POST(self) -> None:
        content = self._body()
        if self.path != "/graphql":  # telemetry, and what a run has logged
            return self._answer()
        body = json.loads(content)
        given = body.get("variables") or {}
        if self.fake.refused in [x for x in given.values() if x]:
            return self._answer({"errors": [{"message": "no space left for you"}]}, 400)
        return self._answer({"data": self.fake.graphql(body["query"], given)})


@pytest.fixture
def server() -> Generator[FakeWandb]:
    """A server on this machine."""
    fake = FakeWandb()
    handler = type("Handler", (_Handler,), {"fake": fake})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as listening:
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        fake.url = f"http://127.0.0.1:{listening.server_port}"
        yield fake
        listening.shutdown()
