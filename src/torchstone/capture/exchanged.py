"""Parameters and buffers that are something else for a while."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

Exchange = Callable[[Tensor], Tensor]
_HOLDERS = ("_parameters", "_buffers")


class Exchanged(dict[str, Any]):
    """What a module holds, each tensor exchanged when it is looked at: most are never looked at."""

    def __init__(self, held: dict[str, Any], exchange: Exchange) -> None:
        super().__init__(held)
        self._exchange = exchange

    def __getitem__(self, name: str) -> Any:
        tensor = super().__getitem__(name)
        return tensor if tensor is None else self._exchange(tensor)

    def get(self, name: str, default: Any = None) -> Any:
        """One tensor, or the default."""
        try:
            return self[name]
        except KeyError:
            return default

    def values(self) -> Any:
        """All tensors."""
        return [self[name] for name in self]

    def items(self) -> Any:
        """All names and tensors."""
        return [(name, self[name]) for name in self]


@contextmanager
def exchanged(modules: list[nn.Module], exchange: Exchange) -> Iterator[None]:
    """While open, each parameter and buffer of the modules is what `exchange` makes of it."""
    before = [(vars(module), name, vars(module)[name]) for module in modules for name in _HOLDERS]
    try:
        for attributes, name, held in before:
            if held:
                attributes[name] = Exchanged(held, exchange)
        yield
    finally:
        for attributes, name, held in before:
            attributes[name] = held


def as_held(held: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """What a module held before anything was exchanged."""
    return iter(dict.items(held))
