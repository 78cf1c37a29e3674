"""What of a module decides its trace: class, attributes, parameters and children, down to the leaves."""

from collections.abc import Hashable
from functools import partial
from types import MethodType
from typing import Any

from torch import Tensor, nn

from torchstone.capture.describe import is_plain
from torchstone.capture.exchanged import as_held
from torchstone.capture.index_reads import layer_numbers
from torchstone.capture.module_tree import ModuleTree, configuring
from torchstone.capture.state import identity_key
from torchstone.capture.tensors import TensorColumns
from torchstone.capture.worlds import StandInWorld

_LONGEST_COMPARED = 4096  # elements of a small real buffer that are compared by value
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


class NoFingerprintError(Exception):
    """The module cannot be compared with another."""


class Fingerprint:
    """One module as it is now, with everything below it."""

    __slots__ = ("held", "key")

    def __init__(self) -> None:
        self.key: Hashable = None
        self.held: list[Tensor] = []  # parameters, buffers and tensor attributes, in order


class Fingerprints:
    """Makes fingerprints of the modules of one tree."""

    def __init__(self, tree: ModuleTree, tensors: TensorColumns, world: StandInWorld) -> None:
        self._tensors = tensors
        self._world = world
        self._numbers: dict[Hashable, int] = {}
        self._hung_twice = {id(tree.modules[number]) for number in tree.other_paths}

    def of(self, module: nn.Module) -> Fingerprint:
        """The fingerprint of a module; equal ones have equal keys."""
        found = Fingerprint()
        key = self._key(module, found)
        numbers = [self._tensors.number_of(tensor) for tensor in found.held]
        ties = tuple(map(numbers.index, numbers)) if len(set(numbers)) < len(numbers) else ()
        found.key = (key, ties)
        return found

    def _key(self, module: nn.Module, found: Fingerprint) -> int:
        attributes = vars(module)
        if id(module) in self._hung_twice or any(map(attributes.get, _HOOKS)):
            raise NoFingerprintError
        parts: list[Any] = [type(module), attributes["training"]]
        layers = layer_numbers(module)
        for name in configuring(tuple(attributes)):
            if name not in layers:
                value = attributes[name]
                bound = isinstance(value, MethodType) and value.__self__ is module
                parts.append((name, (MethodType, value.__func__) if bound else self._attribute(value, found)))
        for held in (attributes["_parameters"], attributes["_buffers"]):
            for name, tensor in as_held(held):
                parts.append((name, None if tensor is None else self._held(tensor, found)))
        for name, child in attributes["_modules"].items():
            parts.append((name, None if child is None else self._key(child, found)))
        return self._numbers.setdefault(tuple(parts), len(self._numbers))

    def _held(self, tensor: Tensor, found: Fingerprint) -> Hashable:
        """A parameter or buffer: by its looks, and by value where it keeps its values."""
        found.held.append(tensor)
        spec = self._tensors.spec_of[self._tensors.number_of(tensor)]
        if self._world.is_stand_in(tensor) or not self._world.stays_real(tensor):
            return spec
        return (spec, _values(tensor))

    def _constant(self, tensor: Tensor, found: Fingerprint) -> Hashable:
        """A tensor that is an attribute like any other: it is used as it is."""
        found.held.append(tensor)
        spec = self._tensors.spec_of[self._tensors.number_of(tensor)]
        return spec if self._world.is_stand_in(tensor) or tensor.is_meta else (spec, _values(tensor))

    def _attribute(self, value: Any, found: Fingerprint) -> Hashable:
        kind = type(value)
        if is_plain(value):
            return (kind, value)
        if issubclass(kind, Tensor):
            return self._constant(value, found)
        if kind in (list, tuple) and all(map(is_plain, value)):
            return (kind, tuple(value))
        if kind is dict and all(map(is_plain, value.values())):
            return (kind, tuple(value.items()))
        if kind is partial:
            given = (*value.args, *value.keywords.values())
            return (kind, identity_key(value.func), *value.keywords, *(self._attribute(one, found) for one in given))
        return identity_key(value)


def _values(tensor: Tensor) -> Hashable:
    """The values of a small tensor; a large one is equal only to itself."""
    return id(tensor) if tensor.numel() > _LONGEST_COMPARED else tuple(tensor.flatten().tolist())
