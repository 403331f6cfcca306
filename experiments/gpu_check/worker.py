"""The process that runs the parts: one that hangs or breaks the GPU's state takes no other along.

Messages to the process are a part with its earlier findings. Messages from it are outcomes: state,
findings and, after an error, its last line and its traceback. The state is ``running`` until the
part has ended.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection
from typing import Any

import torch

from experiments.gpu_check.findings import Findings
from experiments.gpu_check.parts import Part

Outcome = dict[str, Any]
_SECONDS_TO_END = 10.0


class Worker:
    """Runs one part at a time, in a process that is started when it is first needed."""

    def __init__(self, device_type: str) -> None:
        self._device_type = device_type
        self._context = get_context("spawn")  # a fork could not use the GPU
        self._idle = True
        self._process: Any = None
        self._pipe: Any = None

    def run(
        self, part: Part, seconds: float, earlier: Outcome, on_finding: Callable[[Outcome], None]
    ) -> Outcome:
        """Run a part, and kill it after this many seconds; what it has found by then is kept.

        Args:
            part: what to run
            seconds: the time limit
            earlier: rows, figures and problems of an unfinished attempt, or nothing
            on_finding: called with the outcome so far after each finding
        """
        deadline = time.monotonic() + seconds
        self._start()
        self._idle = False
        outcome = earlier
        try:
            self._pipe.send((part, earlier))
            while self._pipe.poll(max(0.0, deadline - time.monotonic())):
                outcome = self._pipe.recv()
                if outcome["state"] == "running":
                    on_finding(outcome)
                    continue
                self._idle = outcome["state"] != "failed"
                if not self._idle:
                    self.stop()  # after an error of CUDA, all that follows in the process fails
                return outcome
        except (EOFError, ConnectionError):
            self._process.join()
            error = f"its process ended with exit code {self._process.exitcode}"
            self.stop()
            return outcome | {"state": "failed", "error": error}
        self.stop()
        return outcome | {"state": "out of time", "error": f"it took longer than {seconds:.0f} s"}

    def _start(self) -> None:
        if self._process is None:
            self._pipe, theirs = self._context.Pipe()
            arguments = (theirs, self._device_type)
            self._process = self._context.Process(target=_serve, args=arguments)
            self._process.start()
            theirs.close()

    def stop(self) -> None:
        """End the process and those it has started; at once if it is in the middle of a part."""
        if self._process is not None:
            self._pipe.close()  # on which an idle one ends by itself
            self._process.join(_SECONDS_TO_END if self._idle else 0)
            self._process.kill()
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.join()
            self._process = None


def _serve(pipe: Connection, device_type: str) -> None:
    os.setsid()  # Ctrl-C reaches the parent only, which ends this process group
    threading.Thread(target=_end_with_parent, daemon=True).start()
    device = torch.device(device_type)
    while True:
        try:
            part, earlier = pipe.recv()
        except EOFError:
            return
        pipe.send(run_part(part, device, earlier, pipe.send))
        gc.collect()
        if "torch._dynamo" in sys.modules:
            torch.compiler.reset()
        if device.type == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(device)


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os.killpg(0, signal.SIGKILL)


def run_part(
    part: Part, device: torch.device, earlier: Outcome, on_finding: Callable[[Outcome], None]
) -> Outcome:
    """Run a part in this process; an error becomes part of the outcome."""
    kept = {key: earlier[key] for key in ("rows", "figures", "problems") if key in earlier}
    findings = Findings(**kept)
    findings.report = lambda found: on_finding({"state": "running", **found.as_dict()})
    try:
        part.run(device, findings)
    except Exception as error:
        last = traceback.format_exception_only(error)[-1].strip().splitlines()[-1]
        failed = {"state": "failed", "error": last, "traceback": traceback.format_exc()}
        return failed | findings.as_dict()
    return {"state": "differs" if findings.problems else "done", **findings.as_dict()}
