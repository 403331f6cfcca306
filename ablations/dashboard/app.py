"""The server's addresses: pages, their event streams, and files. All of them only read."""

from __future__ import annotations

import asyncio
import ipaddress
import json
from collections.abc import AsyncGenerator

import anyio
from sse_starlette import EventSourceResponse
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, Response
from starlette.routing import Route

from ablations.dashboard.directories import Directories, Shown
from ablations.dashboard.page import TEMPLATES, render_page, render_refusal
from ablations.files import HTML_FILE
from ablations.report.write import script_hashes
from experiments.figures.render import script

TITLE = "Ablations"
# Vega compiles its expressions, and sets styles; nothing else may run or be loaded.
_POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
_HEADERS = {"Content-Security-Policy": _POLICY, "Cache-Control": "no-store"}
_MEDIA_TYPES = {".css": "text/css", ".js": "text/javascript"}
_RETRY_MILLISECONDS = 2_000  # after which a browser that was disconnected tries again


class Dashboard:
    """Answers the requests for ``directories``."""

    def __init__(self, directories: Directories) -> None:
        self._directories = directories

    async def overview(self, request: Request) -> Response:
        """All directories."""
        return self._page(TITLE, await self._directories.read(), "/events")

    async def one(self, request: Request) -> Response:
        """One directory by itself."""
        shown = await self._find(request)
        return self._page(f"{shown.name} · {TITLE}", (shown,), f"/d/{shown.name}/events")

    async def report(self, request: Request) -> Response:
        """The report in a directory, as it was last written."""
        path = (await self._find(request)).directory / HTML_FILE
        if not path.is_file():
            raise HTTPException(404, "there is no report yet: python -m ablations report writes it")
        allowed = await asyncio.get_running_loop().run_in_executor(None, script_hashes)
        policy = _POLICY.replace("script-src 'self'", f"script-src 'self' {allowed}")
        headers = _HEADERS | {"Content-Security-Policy": policy}
        return FileResponse(path, media_type="text/html", headers=headers)

    async def events(self, request: Request) -> Response:
        """A stream of what has changed in all directories, or in one."""
        name: str | None = request.path_params.get("name")
        if name is not None:
            await self._find(request)
        ending = anyio.Event()  # set when the server ends
        changes = self._changes(name, ending)
        return EventSourceResponse(
            changes, send_timeout=30, shutdown_event=ending, shutdown_grace_period=1
        )

    async def _changes(
        self, name: str | None, ending: anyio.Event
    ) -> AsyncGenerator[dict[str, object]]:
        sent: dict[tuple[str, str], str] = {}
        while not ending.is_set():
            shown = await self._directories.read(name)
            parts = {(x.name, key): text for x in shown for key, text in (x.parts or {}).items()}
            changed = [
                f'{{"name": {json.dumps(key[0])}, "part": {json.dumps(key[1])}, "value": {text}}}'
                for key, text in parts.items()
                if sent.get(key) != text
            ]
            sent = parts
            # Also sent if nothing has changed, so that the page can tell that it is connected.
            yield {"data": f"[{', '.join(changed)}]", "retry": _RETRY_MILLISECONDS}
            with anyio.move_on_after(self._directories.interval):
                await ending.wait()

    async def file(self, request: Request) -> Response:
        """The style sheet and the script."""
        path = TEMPLATES / request.path_params["file"]
        if path.parent != TEMPLATES or path.suffix not in _MEDIA_TYPES or not path.is_file():
            raise HTTPException(404)
        headers = {"Cache-Control": "no-cache"}
        return FileResponse(path, media_type=_MEDIA_TYPES[path.suffix], headers=headers)

    async def vega(self, request: Request) -> Response:
        """The library that draws the figures."""
        text = await asyncio.get_running_loop().run_in_executor(None, script)
        return Response(text, media_type="text/javascript", headers={"Cache-Control": "no-cache"})

    async def _find(self, request: Request) -> Shown:
        name = request.path_params["name"]
        found = await self._directories.read(name)
        if not found:
            raise HTTPException(404, f"there is no table and no search called {name}")
        return found[0]

    def _page(self, title: str, shown: tuple[Shown, ...], events: str) -> Response:
        roots = ", ".join(map(str, self._directories.roots))
        html = render_page(title, [x.html for x in shown], roots, events)
        return HTMLResponse(html, headers=_HEADERS)


async def _refuse(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    html = render_refusal(error.detail)
    return HTMLResponse(html, error.status_code, {**(error.headers or {}), **_HEADERS})


def make_app(directories: Directories, host: str) -> Starlette:
    """The application that serves ``directories`` at the address ``host``."""
    dashboard = Dashboard(directories)
    routes = [
        Route("/", dashboard.overview),
        Route("/events", dashboard.events),
        Route("/d/{name}", dashboard.one),
        Route("/d/{name}/events", dashboard.events),
        Route("/d/{name}/report", dashboard.report),
        Route("/assets/vega.js", dashboard.vega),
        Route("/assets/{file}", dashboard.file),
    ]
    middleware = [Middleware(GZipMiddleware)]
    if is_loopback(host):
        # Another site could otherwise give its own name to this address and read the answers.
        allowed = ["localhost", "127.0.0.1", "[::1]", host]
        middleware.append(Middleware(TrustedHostMiddleware, allowed_hosts=allowed))
    return Starlette(
        routes=routes,
        middleware=middleware,
        exception_handlers={HTTPException: _refuse},
    )


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
