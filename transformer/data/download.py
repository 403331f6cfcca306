"""One file from a server: resumed where it stopped, tried again, and verified."""

from __future__ import annotations

import hashlib
from pathlib import Path
from time import sleep

import requests
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from urllib3.exceptions import HTTPError

from transformer.data.space import check_space
from transformer.errors import InputError

# (connect, read) in seconds
_TIMEOUT = (10, 60)
_CHUNK = 2**20
# In a row without a byte: before a server has answered at all, and once it has.
_TRIES_UNANSWERED, _TRIES = 2, 6
_LONGEST_PAUSE = 30.0
_TRY_AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504})
_WAY_OUT = "set DATA_MIRROR to a URL or a folder that holds host/path of it"


def download(origin: str, path: Path, sha256: str) -> None:
    """Put what stands at ``origin`` at ``path``, once it is all there and has that checksum.

    What has come so far is kept beside it, in ``.part``, and the next start goes on behind it.

    Raises:
        InputError: if it cannot be had, has no room, or is another file, also when fetched anew.
    """
    transfer = _Transfer(origin, path.with_name(f"{path.name}.part"))
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
    def __init__(self, origin: str, partial: Path) -> None:
        self.origin, self.partial = origin, partial
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
        while True:
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
            if self.received > 0 and not _goes_on(response, self.received):
                self.begin_anew()
            kind = response.headers.get("Content-Type", "").partition(";")[0]
            self.kind = f", {kind}" if kind.startswith("text/html") else ""
            self._write_body(response)

    def _write_body(self, response: requests.Response) -> None:
        missing = int(response.headers.get("Content-Length", 0)) or None
        if missing is not None:
            check_space(self.partial, missing, self.origin)
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
        )
        with Progress(*columns, transient=True) as progress, self.partial.open("ab") as out:
            total = None if missing is None else self.received + missing
            task = progress.add_task(self.partial.stem, total=total, completed=self.received)
            # What has arrived, however little: read() would drop it where the rest breaks off.
            while chunk := response.raw.read1(_CHUNK):
                out.write(chunk)
                self._count(chunk)
                progress.update(task, completed=self.received)

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
