"""A process that does the parts: a part that hangs or breaks the GPU's state ends with it."""

from __future__ import annotations

import gc
import signal
import traceback
from dataclasses import asdict
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

import torch

from experiments.gpu_check.findings import Findings
from experiments.gpu_check.parts import Part
from experiments.run.devices import device_name

Outcome = dict[str, Any]
_SECONDS_TO_END = 10.0


class Worker:
    """Does one part at a time, in a process that is started when it is first needed."""

    def __init__(self, device_type: str) -> None:
        self._device_type = device_type
        self._context = get_context("spawn")  # a fork could not use the GPU
        self._idle = True
        self._process: Any = None
        self._pipe: Any = None

    def do(self, part: Part, seconds: float) -> Outcome:
        """The state, rows and figures of a part; it is killed after this many seconds."""
        if self._process is None:
            self._pipe, theirs = self._context.Pipe()
            arguments = (theirs, self._device_type)
            self._process = self._context.Process(target=_serve, args=arguments)
            self._process.start()
            theirs.close()
        self._idle = False
        self._pipe.send(part)
        if not self._pipe.poll(seconds):
            self.stop()
            return {"state": "out of time", "error": f"it took longer than {seconds:.0f} s"}
        try:
            outcome = self._pipe.recv()
            self._idle = True
        except EOFError:
            self._process.join()
            code = self._process.exitcode
            outcome = {"state": "failed", "error": f"its process ended with exit code {code}"}
        if outcome["state"] == "failed":
            self.stop()  # after an error of CUDA, all that follows in the process fails
        return outcome

    def stop(self) -> None:
        """End the process, at once if it is in the middle of a part."""
        if self._process is not None:
            self._pipe.close()  # on which an idle one ends by itself
            self._process.join(_SECONDS_TO_END if self._idle else 0)
            self._process.kill()
            self._process.join()
            self._process = None


def _serve(pipe: Connection, device_type: str) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the parent, and that this process
    device = torch.device(device_type)
    while True:
        try:
            part: Part = pipe.recv()
        except EOFError:
            return
        pipe.send(carried_out(part, device))
        gc.collect()
        torch.compiler.reset()
        if device.type == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(device)


def carried_out(part: Part, device: torch.device) -> Outcome:
    """The state, rows and figures of a part done here; errors are kept."""
    try:
        findings = part.do(device)
    except Exception as error:
        last = traceback.format_exception_only(error)[-1].strip().splitlines()[-1]
        return {"state": "failed", "error": last, "traceback": traceback.format_exc()}
    state = "differs" if findings.wrong else "done"
    return {"state": state, **asdict(findings)}


def about(device: torch.device) -> Findings:
    """The device and the libraries that drive it, done as a part, so that the parent needs no GPU's
    memory.
    """
    figures: dict[str, Any] = {"device": device_name(device), "torch": torch.__version__}
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        figures |= {
            "compute_capability": f"{properties.major}.{properties.minor}",
            "memory_bytes": properties.total_memory,
            "cuda": torch.version.cuda,
            "cudnn": torch.backends.cudnn.version(),
        }
    return Findings(figures=figures)
