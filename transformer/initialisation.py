"""Start a variant from the weights that the base draws."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

# A weight, or a part of one: a name or an address, the offset of the first element, and the shape.
Region = tuple[str | int, int, torch.Size]


def draw_states(make: Callable[[], nn.Module]) -> dict[Region, Tensor]:
    """The state of torch's generator before each part of a weight of ``make()`` is drawn."""
    with _RecordDraws() as recorded:
        model = make()
    names = _names_by_address(model)
    return {
        (names[address], offset, shape): state
        for (address, offset, shape), state in recorded.states.items()
        if address in names
    }


def reset_from(model: nn.Module, states: dict[Region, Tensor]) -> None:
    """Call ``model.reset_parameters()``, each weight drawn from its state in ``states``.

    The weights of one model thus do not depend on which others it has. Weights that are not in
    ``states`` are drawn from where torch's generator stands.
    """
    reset: Callable[[], None] = model.reset_parameters  # pyright: ignore[reportAssignmentType]
    with _RepeatDraws(_names_by_address(model), states):
        reset()


def _names_by_address(model: nn.Module) -> dict[str | int, str]:
    return {_address(weight): name for name, weight in model.named_parameters()}


def _address(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


class _Draws(TorchDispatchMode):
    """Calls :meth:`draw` in place of each operation that fills a tensor from torch's generator."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        def fill() -> Any:
            return func(*args, **(kwargs or {}))

        is_random = torch.Tag.nondeterministic_seeded in func.tags
        if not is_random or not args or not isinstance(args[0], Tensor):
            return fill()
        drawn: Tensor = args[0]
        return self.draw((_address(drawn), int(drawn.storage_offset()), drawn.shape), fill)

    def draw(self, region: Region, fill: Callable[[], Any]) -> Any:
        raise NotImplementedError


class _RecordDraws(_Draws):
    def __init__(self) -> None:
        super().__init__()
        self.states: dict[Region, Tensor] = {}

    def draw(self, region: Region, fill: Callable[[], Any]) -> Any:
        self.states[region] = torch.get_rng_state()  # if a weight is drawn twice, the last one
        return fill()


class _RepeatDraws(_Draws):
    def __init__(self, names: dict[str | int, str], states: dict[Region, Tensor]) -> None:
        super().__init__()
        self._names, self._states = names, dict(states)

    def draw(self, region: Region, fill: Callable[[], Any]) -> Any:
        address, offset, shape = region
        # Removed, or code that draws a weight until it fits would draw the same one for ever.
        state = self._states.pop((self._names.get(address, ""), offset, shape), None)
        if state is None:
            return fill()
        own = torch.get_rng_state()
        torch.set_rng_state(state)
        try:
            return fill()
        finally:
            torch.set_rng_state(own)
