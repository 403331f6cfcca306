"""Which products of matrices a step makes, by their shapes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

Product = tuple[str, tuple[torch.Size, ...]]

_PRODUCTS = ("mm", "addmm", "bmm", "baddbmm")


class ProductShapes(TorchDispatchMode):
    """Notes the products made within it, in the thread that enters it.

    Those of a backward pass follow from those of the forward pass, so the latter are enough.

    Args:
        seen: to which each kind of product is added with the shapes of its operands
    """

    def __init__(self, seen: set[Product]) -> None:
        super().__init__()
        self._seen = seen

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        del types
        name = str(func).split(".")[1]
        if name in _PRODUCTS:
            shapes = tuple(arg.shape for arg in args if isinstance(arg, Tensor))
            self._seen.add((name, shapes[-2:]))
        return func(*args, **(kwargs or {}))
