"""What a compiler makes of a packed step for an H200, without one.

The step is traced on the CPU without data, moved to a GPU in the graph, and lowered to the kernels
that would run there; nothing runs. Needs torch's CUDA build. Run as a script: SIZE and LAYERS.
"""

# Much of what this calls is torch's own and has no types.
# pyright: reportAttributeAccessIssue=false, reportArgumentType=false, reportCallIssue=false
# pyright: reportFunctionMemberAccess=false, reportPrivateImportUsage=false

from __future__ import annotations

import functools
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from copy import deepcopy
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F

from transformer.config import Config, DataConfig, ModelConfig
from transformer.data.corpora.declared import MULTI30K_EN_DE
from transformer.kernels.dropout import Dropout
from transformer.training.module import TransformerModule
from transformer.training.packing import room
from transformer.training.whole_step import WholeStep

SIZES: dict[str, dict[str, Any]] = {
    "base": {},
    "big": {"d_model": 1024, "d_ff": 4096, "num_heads": 16, "dropout": 0.3},
}
_OF_AN_H200 = {
    "multi_processor_count": 132,
    "major": 9,
    "regs_per_multiprocessor": 65_536,
    "max_threads_per_multi_processor": 2_048,
    "warp_size": 32,
}


def pretend_h200() -> None:
    """Let inductor see an H200."""
    from torch._inductor import scheduler
    from torch._inductor.runtime import hints
    from torch.utils import _triton

    made = hints.DeviceProperties(
        type="cuda", index=0, cc=90, max_threads_per_block=1024, **_OF_AN_H200
    )
    hints.DeviceProperties.create = classmethod(lambda cls, device: made)
    properties = SimpleNamespace(
        **_OF_AN_H200,
        minor=0,
        total_memory=140 << 30,
        name="NVIDIA H200",
        L2_cache_size=60 << 20,
        shared_memory_per_block_optin=232_448,
        gcnArchName="",
    )
    torch.cuda.get_device_properties = lambda *_: properties
    torch.cuda.get_device_capability = lambda *_: (9, 0)
    torch.cuda.current_device = lambda: 0

    def always(value: object) -> Any:
        def function(*_: Any, **__: Any) -> object:
            return value

        function.cache_clear = lambda: None
        return function

    _triton.has_triton = _triton.has_triton_package = scheduler.has_triton = always(True)
    _triton.triton_hash_with_backend = always("none")


def graphs_of(size: str, layers: int) -> tuple[dict[str, Any], Any]:
    """The graphs of forward and backward with their inputs, and their mode without data."""
    from torch._functorch.aot_autograd import aot_function
    from torch._functorch.partitioners import min_cut_rematerialization_partition
    from torch._inductor import compile_fx
    from torch._inductor.decomposition import select_decomp_table
    from torch._inductor.virtualized import V
    from torch._subclasses.fake_tensor import FakeTensorMode

    # Only a compiler's own tracing is noticed by torch.compiler.is_compiling.
    torch.compiler.is_compiling = lambda: True
    Dropout.forward = lambda self, x: F.dropout(x, self.p) if self.p else x
    model = ModelConfig(num_layers=layers, **SIZES[size])
    config = Config(model=model, data=DataConfig(corpus=MULTI30K_EN_DE))
    module = TransformerModule(config).train()
    step = WholeStep(module.model, config, packs=True)
    names, parameters = zip(*module.model.named_parameters(), strict=True)
    fake, table, kept = FakeTensorMode(allow_non_fake_inputs=True), [torch.empty(0)], {}
    module.model.embedding.encode_positions = lambda *_: table[0]
    module.model.forward = step._sums_of_packed

    def whole(weights: Any, positions: Any, *packed: Any) -> Any:
        table[0] = positions
        with torch.autocast("cpu", torch.bfloat16):
            named = dict(zip(names, weights, strict=True))
            return torch.func.functional_call(module.model, named, args=packed)

    def partition(graph: Any, inputs: Any, **settings: Any) -> Any:
        with V.set_fake_mode(fake):
            compile_fx._recursive_joint_graph_passes(graph)
        return min_cut_rematerialization_partition(graph, inputs, compiler="inductor", **settings)

    def keep(name: str, graph: Any, inputs: Any) -> Any:
        kept[name] = graph, list(inputs)
        return graph

    with fake:
        tokens = room(config.data.tokens_per_batch)
        ids = functools.partial(torch.empty, dtype=torch.int64)
        places = functools.partial(torch.empty, dtype=torch.int32)
        side = ids(1, tokens), places(tokens), places(tokens + 1)
        packed = *side, *(each.clone() for each in side), ids(tokens)
        weights = [torch.empty(weight.shape).requires_grad_() for weight in parameters]
        compiled = aot_function(
            whole,
            functools.partial(keep, "forward"),
            functools.partial(keep, "backward"),
            partition_fn=partition,
            decompositions=select_decomp_table(),
        )
        loss, _ = compiled(weights, torch.empty(257, config.model.d_model), *packed)
        torch.autograd.grad(loss, weights, allow_unused=True)
    return kept, fake


def lower(graph: Any, inputs: list[Any], fake: Any, is_backward: bool) -> dict[str, Any]:
    """The code of a graph on a GPU: kernels, atomic additions, and gigabytes read and written."""
    from torch._inductor import compile_fx
    from torch._inductor.debug import DebugContext
    from torch._inductor.graph import GraphLowering
    from torch._inductor.virtualized import V
    from torch.utils._pytree import tree_map

    def moved(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            kind = value.dtype
            return torch.empty_strided(value.size(), value.stride(), dtype=kind, device="cuda:0")
        return torch.device("cuda:0") if isinstance(value, torch.device) else value

    graph = deepcopy(graph)
    with fake:
        for node in graph.graph.nodes:
            if "val" in node.meta:
                node.meta["val"] = tree_map(moved, node.meta["val"])
            node.args = tree_map(moved, node.args)
            node.kwargs = {name: moved(value) for name, value in node.kwargs.items()}
        graph.recompile()
        inputs = [moved(each) for each in inputs]
    with V.set_fake_mode(fake):
        compile_fx._recursive_post_grad_passes(graph, is_inference=False)
        lowering = GraphLowering(
            graph, example_inputs=inputs, is_inference=False, is_backward=is_backward
        )
        with V.set_graph_handler(lowering), V.set_debug_handler(DebugContext()):
            lowering.run(*inputs)
            code, _ = lowering.codegen()
            source = getattr(code, "value", code)
            sizes: Counter[str] = Counter()
            for kind, size in _sizes(lowering.scheduler.nodes):
                sizes[kind] += size
    return {
        "kernels": len(re.findall(r"^\s+triton_\w+\.run\(", source, re.MULTILINE)),
        "products": dict(Counter(re.findall(r"extern_kernels\.(\w+)\(", source))),
        "calls": dict(Counter(re.findall(r"torch\.ops\.([\w.]+)\(", source))),
        "atomics": source.count("tl.atomic_add"),
        "gigabytes": {kind: round(size / 1e9, 2) for kind, size in sizes.items()},
    }


def _sizes(nodes: list[Any]) -> Iterator[tuple[str, int]]:
    for node in nodes:
        size = node.get_read_write_buffers_sizes()
        if type(node).__name__ != "ExternKernelSchedulerNode":
            yield "fused", size
        elif "extern_kernels" in str(getattr(node.node, "python_kernel_name", "")):
            yield "products", size
        else:
            yield "attention and lookups", size


def main(size: str, layers: int) -> None:
    pretend_h200()
    kept, fake = graphs_of(size, layers)
    print(json.dumps({name: lower(*kept[name], fake, name == "backward") for name in kept}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
