"""A stand-in for W&B's server, which keeps what arrives."""

from __future__ import annotations

import gzip
import http.server
import json
import re
import threading
from collections import defaultdict
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

ENTITY = "ada"
_OPERATION = re.compile(r"\b(?:query|mutation)\s+(\w+)")


@dataclass
class Arrived:
    """What has arrived of one run: its first record, history, summary and files."""

    record: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)
    files: set[str] = field(default_factory=set)


class FakeWandb:
    """Runs and views by name; runs whose group is ``refused`` are not taken."""

    def __init__(self) -> None:
        self.runs: dict[str, Arrived] = defaultdict(Arrived)
        self.views: dict[str, dict[str, Any]] = {}
        self.url = ""
        self.refused = ""

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

    def _RunResumeStatus(self, given: dict[str, Any]) -> Any:
        return {"model": {**self._project(given), "bucket": None}}

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

    def _ArtifactType(self, given: dict[str, Any]) -> Any:
        return {"project": {"artifact": None}}

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

    def stream(self, name: str, posted: dict[str, Any]) -> None:
        """Take a piece of a run's history and summary."""
        for file, chunk in (posted.get("files") or {}).items():
            lines = [json.loads(line) for line in chunk["content"]] if ".json" in file else []
            if file == "wandb-history.jsonl":
                self.runs[name].history[chunk["offset"] :] = lines
            elif file == "wandb-summary.json":
                self.runs[name].summary |= lines[-1]


def _handler(fake: FakeWandb) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

        def _answer(self, body: Any = None, status: int = 200) -> None:
            content = json.dumps(body or {}).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        def _body(self) -> bytes:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            zipped = self.headers.get("Content-Encoding") == "gzip"
            return gzip.decompress(body) if zipped else body

        def do_GET(self) -> None:
            self._answer()

        do_HEAD = do_GET

        def do_PUT(self) -> None:
            self._body()
            _, _, run, name = self.path.split("/", 3)
            fake.runs[run].files.add(name)
            self._answer()

        def do_POST(self) -> None:
            content = self._body()
            if not self.headers.get("Content-Type", "").startswith("application/json"):
                self._answer()  # telemetry
                return
            body = json.loads(content)
            if self.path == "/graphql":
                given = body.get("variables") or {}
                if fake.refused and given.get("groupName") == fake.refused:
                    self._answer({"errors": [{"message": "no space left for you"}]}, 400)
                    return
                self._answer({"data": fake.graphql(body["query"], given)})
            elif self.path.endswith("/file_stream"):
                fake.stream(self.path.split("/")[-2], body)
                self._answer()
            else:
                self._answer(status=404)

    return Handler


class _Server(http.server.ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of clients that hang up."""


@contextmanager
def fake_wandb() -> Generator[FakeWandb]:
    """A server on this machine while the context is open."""
    fake = FakeWandb()
    with _Server(("127.0.0.1", 0), _handler(fake)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        fake.url = f"http://127.0.0.1:{server.server_port}"
        yield fake
        server.shutdown()
