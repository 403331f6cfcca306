"""The Triton kernels without a GPU: interpreted, or compiled for an H100 or H200.

Usage: TRITON_INTERPRET=1 python -m tests.kernels.triton_offline interpret
       python -m tests.kernels.triton_offline compile [own other warps stages]
Each prints lines of JSON; the four numbers try another tile.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import triton  # pyright: ignore[reportMissingImports]
from torch import Tensor

from tests.kernels.packed import HEADS, random_heads, sentences_of
from transformer.kernels import sentence_attention as plain
from transformer.kernels import sentence_attention_triton as kernels
from transformer.kernels.sentences import Sentences

# Longer than tiles of 32 and 64 rows, shorter and none; a sentence begins on the last row of one.
QUERIES, KEYS = [5, 26, 32, 1, 0, 140, 20, 33, 3], [9, 61, 2, 0, 4, 131, 0, 30, 7]
# The interpreter multiplies no bf16, so fp16 shows that what is narrow is narrowed where it should.
INTERPRETED = [
    (torch.float32, 8, 8),
    (torch.float32, 16, 64),
    (torch.float32, 24, 40),
    (torch.float32, 64, 64),
    (torch.float16, 24, 40),
]
COMPILED = [(torch.bfloat16, 16, 64), *((dtype, width, width) for dtype, width in kernels.TILES)]


def interpret() -> Iterator[dict[str, Any]]:
    """How far the results are from the plain form's in fp64, relative to their norm."""
    torch.manual_seed(0)
    kernels.TILES[torch.float16, 64] = kernels.TILES[torch.bfloat16, 64]
    for dtype, d_k, d_v in INTERPRETED:
        for causal in (True, False):
            sentences = sentences_of(QUERIES, QUERIES if causal else KEYS, causal)
            queries, keys = len(sentences.query_sentences), len(sentences.key_sentences)
            given = random_heads(queries, keys, d_k, d_v, dtype)
            given = [x.squeeze(0).transpose(0, 1) for x in given]
            gradient = torch.randn(queries, HEADS, d_v, dtype=dtype)
            found = run(kernels, gradient, given, sentences)
            expected = run(plain, gradient.double(), [x.double() for x in given], sentences)
            distances = [
                float(torch.dist(one.double(), other) / other.norm())
                for one, other in zip(found, expected, strict=True)
            ]
            yield case(dtype, d_k, d_v) | {"causal": causal, "distances": distances}


def run(
    module: Any, gradient: Tensor, given: list[Tensor], sentences: Sentences
) -> tuple[Tensor, ...]:
    """Values, 1 over each query's sum, and the gradients of query, key and value."""
    out, log_sums = module.attend(*given, sentences)
    return (
        out,
        (-log_sums).exp2(),
        *module.differentiate(gradient, *given, out, log_sums, sentences),
    )


def case(dtype: torch.dtype, d_k: int, d_v: int) -> dict[str, Any]:
    return {"dtype": str(dtype).removeprefix("torch."), "d_k": d_k, "d_v": d_v}


def compile_for_hopper() -> Iterator[dict[str, Any]]:
    """What each kernel takes of a multiprocessor, as it is launched for 16 heads."""
    compiled = compile_instead_of_launching()
    sentences = sentences_of([128], [128], causal=True)
    for dtype, d_k, d_v in COMPILED:
        if len(sys.argv) > 2:
            tile = kernels.Tile(*(int(number) for number in sys.argv[2:]))
            kernels.TILES[dtype, max(d_k, d_v)] = tile
        given = [torch.zeros(128, 16, width, dtype=dtype) for width in (d_k, d_k, d_v)]
        run(kernels, torch.zeros(128, 16, d_v, dtype=dtype), given, sentences)
        tile = kernels.TILES[dtype, max(d_k, d_v)]._asdict()
        for kernel in compiled:
            yield case(dtype, d_k, d_v) | tile | resources(kernel)
        compiled.clear()


def compile_instead_of_launching() -> list[Any]:
    """Make each launch end in a list, compiled for compute capability 9.0."""
    from triton.backends.compiler import GPUTarget  # pyright: ignore[reportMissingImports]
    from triton.runtime import driver  # pyright: ignore[reportMissingImports]
    from triton.runtime.jit import JITFunction  # pyright: ignore[reportMissingImports]

    class Driver:
        def get_current_device(self) -> int:
            return 0

        def get_current_stream(self, device: int) -> int:
            return 0

        def get_current_target(self) -> Any:
            return GPUTarget("cuda", 90, 32)

    compiled: list[Any] = []
    launch = JITFunction.run

    def compile_only(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> None:
        compiled.append(launch(self, *args, grid=grid, warmup=True, **kwargs))

    pretended: Any = Driver()
    driver.set_active(pretended)
    JITFunction.run = compile_only
    return compiled


def resources(kernel: Any) -> dict[str, Any]:
    """Registers of a thread, shared and spilled bytes, and how often it adds and multiplies so."""
    tool = Path(str(triton.__file__)).parent / "backends/nvidia/bin/cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(kernel.asm["cubin"])
        file.flush()
        said = subprocess.run(
            [tool, "--dump-resource-usage", file.name], check=True, capture_output=True, text=True
        ).stdout
    usage = {name: int(number) for name, number in re.findall(r"(REG|STACK|LOCAL):(\d+)", said)}
    ptx: str = kernel.asm["ptx"]
    return {
        "kernel": kernel.metadata.name,
        "target": re.findall(r"\.target (\w+)", ptx)[0],
        "registers": usage["REG"],
        "shared": kernel.metadata.shared,
        "spilled": usage["STACK"] + usage["LOCAL"],
        "atomics": len(re.findall(r"\b(?:atom|red)\.", ptx)),
        "wgmma": ptx.count("wgmma.mma_async"),
    }


if __name__ == "__main__":
    commands = {"interpret": interpret, "compile": compile_for_hopper}
    for line in commands[sys.argv[1]]():
        print(json.dumps(line), flush=True)
