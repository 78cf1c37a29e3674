"""Tensors that foreign code writes while it runs, and their values from before.

What was in memory is copied just before the first op that writes there: nothing is copied for code that does not write.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from threading import get_ident
from typing import Any
from weakref import ref

import torch
from torch import Tensor, UntypedStorage
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_iter

from torchstone.numerics.dispatch import KernelOp, KernelOpMode, OpArguments, OpKeywords

_DATA: Any = Tensor.data
_STATISTICS = ("running_mean", "running_var")  # which batch norm writes, although its schema does not say so


@dataclass(frozen=True, slots=True, kw_only=True)
class _Looks:
    """What a tensor was before it was written."""

    tensor: ref[Tensor]
    memory: ref[UntypedStorage]
    value: UntypedStorage  # a copy of the memory
    place: tuple[tuple[int, ...], tuple[int, ...], int, torch.dtype]
    requires_grad: bool
    is_leaf: bool


class WrittenTensors:
    """Tensors from before a run that it writes, by ops in place or by assigning `tensor.data`."""

    def __init__(self, was_there: Callable[[Tensor], bool]) -> None:
        """`was_there` says of a tensor whether the run did not make it."""
        self._was_there = was_there
        self._values: dict[int, tuple[ref[UntypedStorage], UntypedStorage]] = {}  # by pointer
        self._looks: dict[int, _Looks] = {}  # by id

    @contextmanager
    def watching(self) -> Iterator[None]:
        """What this thread writes meanwhile is put back at the end."""
        outer = _OPEN.get(get_ident(), ())
        _OPEN[get_ident()] = (*outer, self)
        try:
            yield
        finally:
            _OPEN[get_ident()] = outer
            if not outer:
                del _OPEN[get_ident()]
            with _disable_current_modes(), torch.no_grad():
                self._restore()

    def save(self, tensor: Tensor) -> None:
        """A tensor is going to be written, or to be given other data."""
        without_values = type(tensor) is FakeTensor or tensor.is_meta or tensor.layout is not torch.strided
        known = self._looks.get(id(tensor))
        if without_values or (known is not None and known.tensor() is tensor) or not self._was_there(tensor):
            return
        with _disable_current_modes():
            memory = tensor.untyped_storage()
            saved = self._values.get(memory._cdata)
            if saved is None or saved[0]() is not memory:
                saved = self._values[memory._cdata] = (ref(memory), memory.clone())
            self._looks[id(tensor)] = _Looks(
                tensor=ref(tensor),
                memory=saved[0],
                value=saved[1],
                place=_place_of(tensor),
                requires_grad=tensor.requires_grad,
                is_leaf=tensor.is_leaf,
            )

    def _restore(self) -> None:
        for reference, value in self._values.values():
            memory = reference()
            if memory is not None:
                if memory.nbytes() != value.nbytes():
                    memory.resize_(value.nbytes())
                memory.copy_(value)
        for looks in self._looks.values():
            tensor = looks.tensor()
            if tensor is None:
                continue
            if tensor.grad_fn is not None and looks.is_leaf and not tensor._is_view():
                tensor.detach_()  # a result of weights was written into it
            if _place_of(tensor) != looks.place or tensor.untyped_storage() is not looks.memory():
                shape, strides, offset, dtype = looks.place
                memory = looks.memory() or looks.value
                _DATA.__set__(
                    tensor, torch.empty(0, dtype=dtype, device=tensor.device).set_(memory, offset, shape, strides)
                )
            if tensor.is_leaf and tensor.requires_grad is not looks.requires_grad:
                tensor.requires_grad_(looks.requires_grad)


def _place_of(tensor: Tensor) -> tuple[tuple[int, ...], tuple[int, ...], int, torch.dtype]:
    return tuple(tensor.shape), tensor.stride(), int(tensor.storage_offset()), tensor.dtype


_OPEN: dict[int, tuple[WrittenTensors, ...]] = {}  # by thread


def save_written(tensor: Tensor) -> None:
    """A tensor is going to be given other data: tell all that watch this thread."""
    for written in _OPEN.get(get_ident(), ()):
        written.save(tensor)


class _WritesWatched(KernelOpMode):
    """Saves each tensor from before that an op is going to write."""

    def __init__(self) -> None:
        super().__init__()
        self._made: dict[int, ref[UntypedStorage]] = {}  # by pointer: memory of results, which need not be saved
        self.written = WrittenTensors(self._was_there)

    def run_op(self, func: KernelOp, args: OpArguments, kwargs: OpKeywords) -> object:
        """Run an op; what it gives is the run's own."""
        for tensor in tree_iter(_written_by(func, args, kwargs)):
            if isinstance(tensor, Tensor):
                self.written.save(tensor)
        result = func(*args, **kwargs)
        given = {id(memory) for memory in _memory_of((args, kwargs))}
        self.own(memory for memory in _memory_of(result) if id(memory) not in given)
        return result

    def own(self, memories: Iterable[UntypedStorage]) -> None:
        """What is written there need not be put back."""
        self._made.update({memory._cdata: ref(memory) for memory in memories})

    def _was_there(self, tensor: Tensor) -> bool:
        memory = tensor.untyped_storage()
        made = self._made.get(memory._cdata)
        return made is None or made() is not memory


def _memory_of(values: object) -> Iterator[UntypedStorage]:
    """The memory of the tensors in something."""
    for one in tree_iter(values):
        if isinstance(one, Tensor):
            with suppress(NotImplementedError, RuntimeError):  # sparse and other layouts without plain memory
                yield one.untyped_storage()


def _written_by(op: KernelOp, args: OpArguments, kwargs: OpKeywords) -> list[object]:
    """The arguments that an op changes in place."""
    if not isinstance(op, OpOverload):
        return []
    schema = op._schema.arguments
    written = {one.name for one in schema if one.name in _STATISTICS or (one.alias_info and one.alias_info.is_write)}
    given = (*zip((one.name for one in schema), args, strict=False), *kwargs.items()) if written else ()
    return [value for name, value in given if name in written]


@contextmanager
def written_put_back(own: object) -> Iterator[None]:
    """Put back at the end what code writes in tensors from before, by ops on this thread.

    It may write to the tensors in `own`, which were copied for it.
    """
    mode = _WritesWatched()
    mode.own(_memory_of(own))
    with mode.written.watching(), mode:
        yield
