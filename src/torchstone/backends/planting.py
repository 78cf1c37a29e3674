"""Where a fault is planted, and the dispatch mode that lets it happen there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakIdKeyDictionary

from torchstone.backends.faults import AFTER, BEFORE, Dose


def _is_named(op: str, pattern: str) -> bool:
    """Whether a pattern means an op; a bare name means all overloads of it."""
    return fnmatchcase(op, pattern) or op.split(".")[1:2] == [pattern]


@dataclass(frozen=True)
class Plant:
    """One fault and the op calls that it happens in: those that fit everything said here."""

    fault: str
    op: str = "*"  # pattern of the op's name: "aten.mm.*", or the bare name: "mm"
    shape: Sequence[int] | None = None  # one of the tensors that go in has this shape
    module: str = ""  # pattern of the class or path of the innermost module that is running
    after: str = ""  # pattern of an op: one of the tensors that go in came out of it
    nth: int | None = None  # only the nth of the calls that fit, counted from 1 in each run
    seconds: float = Dose.seconds
    bytes: int = Dose.bytes
    threads: int = Dose.threads

    def __post_init__(self) -> None:
        if self.fault not in (*BEFORE, *AFTER):
            msg = f"there is no fault {self.fault!r}; known are {', '.join([*AFTER, *BEFORE])}"
            raise ValueError(msg)


class FaultMode(TorchDispatchMode):
    """Looks at every op call and lets the planted faults happen."""

    def __init__(self, plants: Sequence[Plant]) -> None:
        super().__init__()
        self.plants = plants
        self.running: list[tuple[str, str]] = []  # path and class of the modules that are running
        self._seen = [0] * len(plants)
        self._made_by = WeakIdKeyDictionary()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run one op, with what is planted there."""
        kwargs = kwargs or {}
        name = str(func)
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        faults = [plant for number, plant in enumerate(self.plants) if self._is_due(number, plant, name, tensors)]
        for plant in faults:
            if plant.fault in BEFORE:
                BEFORE[plant.fault](Dose(name, plant.seconds, plant.bytes, plant.threads))
        result = func(*args, **kwargs)
        for plant in faults:
            if plant.fault in AFTER:
                result = _changed(func, result, AFTER[plant.fault](result))
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor):
                self._made_by[leaf] = name
        return result

    def left(self, *_: Any) -> None:
        """The innermost module has ended."""
        self.running.pop()

    def _is_due(self, number: int, plant: Plant, name: str, tensors: list[Tensor]) -> bool:
        fits = (
            _is_named(name, plant.op)
            and (plant.shape is None or any(tuple(plant.shape) == tuple(one.shape) for one in tensors))
            and (not plant.after or any(_is_named(self._made_by.get(one, ""), plant.after) for one in tensors))
            and (not plant.module or any(fnmatchcase(word, plant.module) for word in (self.running or [("", "")])[-1]))
        )
        self._seen[number] += fits
        return fits and plant.nth in (None, self._seen[number])


def _changed(func: Any, result: Any, other: Any) -> Any:
    """The other result; an op that writes to its argument keeps giving that one, with the other values."""
    writes = any(argument.alias_info and argument.alias_info.is_write for argument in func._schema.arguments)
    if not writes or not isinstance(result, Tensor):
        return other
    return result.copy_(other)


@contextmanager
def planted(module: nn.Module, plants: Sequence[Plant]) -> Iterator[FaultMode]:
    """Let faults happen in what runs inside; every hook is gone on exit."""
    mode = FaultMode(plants)
    with ExitStack() as stack:
        for path, one in module.named_modules():
            entry = (path, type(one).__name__)
            before = one.register_forward_pre_hook(lambda *_, entry=entry: mode.running.append(entry))
            after = one.register_forward_hook(mode.left, always_call=True)
            stack.callback(before.remove)
            stack.callback(after.remove)
        stack.enter_context(mode)
        yield mode
