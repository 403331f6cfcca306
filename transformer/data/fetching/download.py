"""One file from a server: resumed where it stopped, tried again, and verified."""

from __future__ import annotations

import hashlib
from pathlib import Path
from time import sleep

import requests
from urllib3.exceptions import HTTPError

from transformer.data.fetching.space import check_space
from transformer.errors import InputError
from transformer.progress import show_bytes

# (connect, read) in seconds
_TIMEOUT = (10, 60)
_CHUNK = 2**20
# In a row without a byte: before a server has answered at all, and once it has.
_TRIES_UNANSWERED, _TRIES = 2, 6
_LONGEST_PAUSE = 30.0
_TRY_AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504})
_WAY_OUT = "set DATA_MIRROR to a URL or a folder that holds host/path of it"


def partial(path: Path) -> Path:
    """Where what has come of ``path`` so far is kept."""
    return path.with_name(f"{path.name}.part")


def download(origin: str, path: Path, sha256: str, size: int | None = None) -> None:
    """Put what stands at ``origin`` at ``path``, once it is all there and has that checksum.

    What has come so far is kept in its :func:`partial`, and the next start goes on behind it.

    Args:
        size: in bytes, where it is known: a server that offers another size is not believed

    Raises:
        InputError: if it cannot be had, has no room, or is another file, also when fetched anew.
    """
    transfer = _Transfer(origin, partial(path), size)
    found = ""
    for _ in range(2):
        transfer.complete()
        if transfer.digest.hexdigest() == sha256:
            transfer.partial.replace(path)
            return
        found = f"{transfer.digest.hexdigest()} ({transfer.received} bytes{transfer.kind})"
        transfer.begin_anew()
    raise InputError(
        f"{origin} is not the declared file: expected sha256 {sha256}, found {found}; {_WAY_OUT}"
    )


class _Transfer:
    def __init__(self, origin: str, partial: Path, size: int | None) -> None:
        self.origin, self.partial, self.size = origin, partial, size
        self.kind = ""
        self.received = 0
        self.digest = hashlib.sha256()
        self._answered = False
        if partial.exists():
            with partial.open("rb") as file:
                while chunk := file.read(_CHUNK):
                    self._count(chunk)

    def complete(self) -> None:
        """Receive all that is missing."""
        failures = 0
        while self.received != self.size:
            before = self.received
            try:
                self._receive()
                return
            except (requests.RequestException, HTTPError) as error:
                failures = 1 if self.received > before else failures + 1
                tries = _TRIES if self._answered else _TRIES_UNANSWERED
                if failures >= tries or _is_final(error):
                    raise self._fault(error) from error
            sleep(min(2.0 ** (failures - 1), _LONGEST_PAUSE))

    def begin_anew(self) -> None:
        """Throw away what has come."""
        self.partial.unlink(missing_ok=True)
        self.received, self.digest = 0, hashlib.sha256()

    def _receive(self) -> None:
        headers = {"Accept-Encoding": "identity"}
        if self.received > 0:
            headers["Range"] = f"bytes={self.received}-"
        with requests.get(self.origin, stream=True, timeout=_TIMEOUT, headers=headers) as response:
            if self.received > 0 and response.status_code == 416:
                return  # there is no more: all is here, or another file is there
            response.raise_for_status()
            self._answered = True
            kind = response.headers.get("Content-Type", "").partition(";")[0]
            self.kind = f", {kind}" if kind.startswith("text/html") else ""
            start = self.received if _goes_on(response, self.received) else 0
            missing = int(response.headers.get("Content-Length", 0)) or None
            self._refuse_another_size(None if missing is None else start + missing)
            if start == 0 < self.received:
                self.begin_anew()
            self._write_body(response, missing)

    def _refuse_another_size(self, offered: int | None) -> None:
        """Before what has come is thrown away for, say, the page that a network asks to log in."""
        if offered is not None and self.size is not None and offered != self.size:
            raise InputError(
                f"{self.origin} is not the declared file: expected {self.size} bytes, "
                f"found {offered}{self.kind}; {_WAY_OUT}"
            )

    def _write_body(self, response: requests.Response, missing: int | None) -> None:
        if missing is not None:
            check_space(self.partial, missing, self.origin)
        total = self.size if missing is None else self.received + missing
        stage = f"fetch {self.partial.stem}"
        with self.partial.open("ab") as out, show_bytes(stage, total, self.received) as show:
            # What has arrived, however little: read() would drop it where the rest breaks off.
            while chunk := response.raw.read1(_CHUNK):
                out.write(chunk)
                out.flush()  # or a kill would lose what has arrived
                self._count(chunk)
                show(self.received)

    def _count(self, chunk: bytes) -> None:
        self.received += len(chunk)
        self.digest.update(chunk)

    def _fault(self, error: requests.RequestException | HTTPError) -> InputError:
        if (status := _status(error)) is not None:
            reason = f"HTTP {status}"
        elif self.received > 0:
            reason = f"it broke off after {self.received} bytes, which are kept: try again"
        else:
            reason = type(error).__name__
        return InputError(f"{self.origin} cannot be downloaded ({reason}); {_WAY_OUT}")


def _goes_on(response: requests.Response, start: int) -> bool:
    """Whether the server sends what lies behind ``start``, and not the file from its beginning."""
    sent = response.headers.get("Content-Range", "")
    return response.status_code == 206 and sent.startswith(f"bytes {start}-")


def _status(error: requests.RequestException | HTTPError) -> int | None:
    response = error.response if isinstance(error, requests.RequestException) else None
    return None if response is None else response.status_code


def _is_final(error: requests.RequestException | HTTPError) -> bool:
    status = _status(error)
    return status is not None and status not in _TRY_AGAIN
