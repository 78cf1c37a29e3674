"""When a model lets go of tensors that the capture keeps, in order to put them back after the run.

Nothing that modules held before a run dies while it runs, since the capture holds it, too. To the model it is gone when
only the capture refers to it. Reference counts say so: those that the capture adds before the run begins
are known, and all others are the model's or its user's, be they in local variables, lists, views or autograd nodes.
"""

from collections.abc import Collection, Iterator
from itertools import chain
from operator import sub
from sys import getrefcount
from typing import Any

import torch
from torch import Tensor, nn

from torchstone.capture.layouts import ATOMS, CONTAINERS, GROWING, inner_containers, parts_of
from torchstone.capture.module_tree import ModuleTree
from torchstone.capture.tables import storage_pointer

_DEEPEST = 3  # containers in containers that are looked into


class _Kept:
    """An object that the capture keeps, and how many references it has when the model has none."""

    __slots__ = ("alone", "uses", "value")

    def __init__(self, value: Any, alone: int = 0) -> None:
        self.value = value
        self.alone = alone
        self.uses = 1  # in torch

    def references(self) -> int:
        """All references, those that this call makes among them."""
        return getrefcount(self.value)

    def is_gone(self) -> bool:
        """Whether only the capture refers to the object, in Python or, to a tensor, in torch."""
        if self.references() > self.alone:
            return False
        return not issubclass(type(self.value), Tensor) or self.value._use_count() <= self.uses


_ALONE = _Kept(object()).references()


class KeptTensors:
    """The tensors that modules hold before a run, and when the model has let go of their memory.

    A module that lets go of a parameter or buffer says so (`let_go`), and only then is that asked for. Nothing says
    that an attribute was replaced, so these are asked for each time: tensors and what contains tensors.
    """

    def __init__(self, tree: ModuleTree) -> None:
        """Look at what there is, before the capture refers to any of it."""
        self._asked = {id(value): _Kept(value) for value in chain(_attributes_of(tree), _inner_tensors_of(tree))}
        self._kept = self._asked.copy()
        held = {id(tensor): tensor for tensor in _held_by(tree.modules) if id(tensor) not in self._asked}
        # Most of these are never asked for: each gets an object of its own when it is.
        self._held: list[Tensor] = list(held.values())
        self._places = dict(zip(held, range(len(held)), strict=True))
        del held
        self._gone: dict[int, int] = {}  # by pointer of memory: tensors that share it and that only the capture has
        for one in self._asked.values():
            one.alone = one.references()
        self._references = list(map(getrefcount, self._held))
        self._uses_alone = 0
        self._references_of_torch = 0

    def count_own(self) -> None:
        """All references that were added since are the capture's."""
        for one in self._kept.values():
            one.alone = _ALONE + one.references() - one.alone
        self._references = list(map(sub, map(getrefcount, self._held), self._references))
        tensor = torch.empty(1)
        self._uses_alone = _uses(tensor.untyped_storage()._cdata)
        new = _Kept(tensor)
        before = new.references()
        view = tensor[:0]  # refers to the tensor
        self._references_of_torch = new.references() - before  # one in newer versions, however many views there are
        del view

    def let_go(self, tensor: Tensor) -> None:
        """A module let go of a parameter or buffer; other code may still use it."""
        if id(tensor) in self._kept or id(tensor) in self._places:
            self._ask_for(tensor)

    def gone(self) -> list[int]:
        """The pointers of memory that went since the last time."""
        while gone := [one for one in self._asked.values() if one.is_gone()]:
            for one in gone:
                del self._asked[id(one.value)]
                if issubclass(type(one.value), Tensor):
                    self._let_tensor_go(one.value)
                else:
                    self._ask_for_parts(one.value)
        if not self._gone:
            return []
        # Views of the memory use it, too.
        pointers = [pointer for pointer, count in self._gone.items() if _uses(pointer) < self._uses_alone + count]
        for pointer in pointers:
            del self._gone[pointer]
        return pointers

    def _let_tensor_go(self, tensor: Tensor) -> None:
        pointer = storage_pointer(tensor)
        if pointer is not None:
            self._gone[pointer] = self._gone.get(pointer, 0) + 1
        if tensor._base is not None:  # which a view that only the capture has refers to
            base = self._ask_for(tensor._base)
            base.alone += self._references_of_torch if base.uses == 1 else 0
            base.uses += 1

    def _ask_for(self, value: object) -> _Kept:
        kept = self._kept.get(id(value))
        if kept is None:
            place = self._places.get(id(value))
            own = 0 if place is None else self._references[place] + 1  # that of the list
            kept = self._kept[id(value)] = _Kept(value, _ALONE + own)
        self._asked[id(value)] = kept
        return kept

    def _ask_for_parts(self, container: object) -> None:
        """What is in a container that only the capture has is referred to by that, and not by the model."""
        for part in _parts(container):
            if issubclass(type(part), Tensor) or type(part) in CONTAINERS:
                self._ask_for(part).alone += 1


def _uses(pointer: int) -> int:
    """How many tensors share memory, and how many references there are to its storage object."""
    return torch._C._storage_Use_Count(pointer)


def _held_by(modules: list[nn.Module]) -> Iterator[Tensor]:
    """The parameters and buffers."""
    held: list[Tensor | None] = []
    for module in modules:
        held += module._parameters.values()
        held += module._buffers.values()
    return (tensor for tensor in held if tensor is not None)


def _attributes_of(tree: ModuleTree) -> Iterator[object]:
    """The other attributes, and what is in those that are copied: tensors, and what may contain some."""
    for module, layout in zip(tree.modules, tree.layouts, strict=True):
        attributes = vars(module)
        for name in layout.tensors:
            yield attributes[name]
        for name in layout.containing:
            value = attributes[name]
            parts = _parts(value)
            if ATOMS.issuperset(map(type, parts)) and (parts or type(value) is tuple):  # sizes, names
                continue
            if type(value) in GROWING:
                yield from filter(_may_contain, (value, *parts))
            elif _may_contain(value):
                yield value


def _inner_tensors_of(tree: ModuleTree) -> Iterator[object]:
    """The tensors in containers and objects that attributes reach: these are copied, too."""
    for container in inner_containers(tree.modules, tree.layouts):
        yield from (part for part in parts_of(container) if issubclass(type(part), Tensor))


def _may_contain(value: object) -> bool:
    """Whether a value is a tensor, contains some or is empty now."""
    return (type(value) in GROWING and not value) or any(_tensors_in(value, 0))


def _tensors_in(value: object, depth: int) -> Iterator[bool]:
    """Something for each tensor in a value."""
    if issubclass(type(value), Tensor):  # some objects raise when they are asked for their class
        yield True
    elif type(value) in CONTAINERS and depth < _DEEPEST:
        for part in _parts(value):
            yield from _tensors_in(part, depth + 1)


def _parts(container: object) -> Collection[object]:
    if isinstance(container, dict):
        return container.values()
    return container if isinstance(container, list | tuple) else ()
