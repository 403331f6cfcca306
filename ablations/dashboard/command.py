"""The command ``dashboard``: serve until a signal asks for an end."""

from __future__ import annotations

import errno
import signal
import socket
import threading
import webbrowser
from collections.abc import Sequence
from pathlib import Path

from ablations.dashboard.directories import Directories, find_directories
from ablations.dashboard.server import Server, is_loopback
from experiments.command_line import stop_signals
from transformer.errors import InputError

_MOST_PORTS = 50


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
    shown = _shown_host(host)
    address = f"http://{shown}:{listening.getsockname()[1]}"
    roots = directories or [Path("runs")]
    server = Server(listening, Directories(roots), loopback_only=is_loopback(host))
    received: list[int] = []

    def end(number: int, _frame: object) -> None:
        received.append(number)
        threading.Thread(target=server.shutdown).start()  # it waits for this thread

    for number in stop_signals():
        signal.signal(number, end)
    what = ", ".join(map(str, directories)) or "all in runs"
    print(f"dashboard of {what}: {address} (Ctrl-C ends it)", flush=True)
    if not is_loopback(host):
        print("everybody who can reach this machine can read it, logs included", flush=True)
    if open_browser and not _open(address):
        print(f"no browser was found here: open {address}", flush=True)
    with server:
        server.serve_forever()
    return 128 + received[0]


def _listen(host: str, port: int) -> socket.socket:
    """Listen at ``port``, or at the next free one; the line that says so is printed.

    Raises:
        InputError: if the address cannot be used.
    """
    try:
        family, kind, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, OverflowError, UnicodeError) as error:
        raise InputError(f"--host {host} --port {port} is no address ({error})") from error
    ports = range(port, min(port + _MOST_PORTS, 65_536)) if port else range(1)
    for candidate in ports:
        listening = socket.socket(family, kind)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((address[0], candidate, *address[2:]))
            listening.listen()
        except OSError as error:
            listening.close()
            if error.errno == errno.EADDRINUSE:
                continue
            why = error.strerror or str(error)
            raise InputError(f"cannot listen at {host}, port {candidate} ({why})") from error
        if candidate != port:
            print(f"port {port} is in use, so it is {candidate}", flush=True)
        return listening
    raise InputError(f"no port from {ports[0]} to {ports[-1]} is free at {host}: choose a --port")


def _shown_host(host: str) -> str:
    name = socket.gethostname() if host in ("0.0.0.0", "::", "") else host
    return f"[{name}]" if ":" in name else name


def _open(address: str) -> bool:
    try:
        return webbrowser.open(address)
    except webbrowser.Error:
        return False
