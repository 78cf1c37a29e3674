"""The modules of a model -> module records, in pre-order."""

from collections.abc import Hashable, Iterator, Mapping
from functools import cache
from typing import Any

from torch import Tensor, nn

from torchstone.capture.describe import class_path, describe_plain, is_plain
from torchstone.capture.index_reads import layer_numbers
from torchstone.capture.source import source_of
from torchstone.record.module import Module, Parameter, Source
from torchstone.record.value import Items, Opaque, Value

_CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict, nn.ParameterList, nn.ParameterDict)
_LONGEST_ATTRIBUTE = 32
_BOOKKEEPING = frozenset(vars(nn.Module())) | {"training"}  # what every module has for its own bookkeeping


class ModuleTree:
    """The modules of one model with the numbers the trace gives them."""

    def __init__(self, model: nn.Module) -> None:
        self.modules: list[nn.Module] = []
        self.paths: list[str] = []
        self.parents: list[int] = []
        self.other_paths: dict[int, list[str]] = {}
        self.number_of: dict[int, int] = {}  # id(module) -> number
        self._layers: list[set[int]] = []  # for each module: the layer numbers in it and below it
        self._ends: list[int] = []  # for each module: the number after its last descendant
        self._walk(model, "", -1)

    def _walk(self, module: nn.Module, path: str, parent: int) -> None:
        known = self.number_of.get(id(module))
        if known is not None:
            self.other_paths.setdefault(known, []).append(path)
            return
        number = self.number_of[id(module)] = len(self.modules)
        self.modules.append(module)
        self.paths.append(path)
        self.parents.append(parent)
        self._ends.append(0)
        self._layers.append(set(layer_numbers(module).values()))
        for name, child in module._modules.items():
            if child is not None:
                self._walk(child, f"{path}.{name}" if path else name, number)
        self._ends[number] = len(self.modules)
        if parent >= 0:
            self._layers[parent] |= self._layers[number]

    def layer_of(self, module: nn.Module) -> int | None:
        """The number of the layer that a module is or lies in; None where it belongs to none or to several."""
        layers = self._layers[self.number_of[id(module)]]
        return next(iter(layers)) if len(layers) == 1 else None

    def span(self, module: nn.Module) -> range:
        """The numbers of a module and everything below it."""
        number = self.number_of[id(module)]
        return range(number, self._ends[number])

    def sole_modules(self) -> set[int]:
        """The ids of the modules that no other module of the tree can be equal to: told apart by a quick look."""
        looks: list[Hashable] = [None] * len(self.modules)
        members: dict[Hashable, list[int]] = {}
        for number in range(len(self.modules) - 1, -1, -1):  # children stand after their parent
            module, end = self.modules[number], self._ends[number]
            first = next(iter(dict.values(module._parameters)), None)
            below = hash((looks[number + 1], looks[end - 1])) if end - number > 1 else 0
            look = looks[number] = (type(module), end - number, first if first is None else first.shape, below)
            members.setdefault(look, []).append(id(module))
        return {same[0] for same in members.values() if len(same) == 1}

    def held_tensors(self) -> Iterator[tuple[str, str, Tensor]]:
        """Kind, path and tensor of every parameter, buffer and attribute that is a tensor, in order."""
        for module, path in zip(self.modules, self.paths, strict=True):
            own = vars(module)
            constants = [(name, own[name]) for name in configuring(tuple(own)) if not is_plain(own[name])]
            for kind, held in (
                ("parameter", module._parameters.items()),
                ("buffer", module._buffers.items()),
                ("constant", constants),
            ):
                for name, tensor in held:
                    if isinstance(tensor, Tensor):
                        yield kind, f"{path}.{name}" if path else name, tensor

    def records(self, numbers: Mapping[int, int]) -> tuple[Module, ...]:
        """The modules as records, given the number of each parameter and buffer by its id."""
        return tuple(self._record(number, module, numbers) for number, module in enumerate(self.modules))

    def sources(self) -> dict[str, Source]:
        """Where each class is defined."""
        classes = dict.fromkeys(type(module) for module in self.modules)
        found = ((class_path(cls), source_of(cls)) for cls in classes)
        return {name: source for name, source in found if source is not None}

    def _record(self, number: int, module: nn.Module, numbers: Mapping[int, int]) -> Module:
        transient = module._non_persistent_buffers_set
        return Module(
            path=self.paths[number],
            class_name=class_path(type(module)),
            parent=self.parents[number],
            attributes=attributes_of(module),
            parameters=tuple(
                [
                    Parameter(name=name, tensor=numbers[id(tensor)], trainable=tensor.requires_grad)
                    for name, tensor in module._parameters.items()
                    if tensor is not None
                ]
            ),
            buffers=tuple(
                [
                    Parameter(name=name, tensor=numbers[id(tensor)], persistent=name not in transient)
                    for name, tensor in module._buffers.items()
                    if tensor is not None
                ]
            ),
            other_paths=tuple(self.other_paths.get(number, ())),
            training=module.training,
            container=type(module) in _CONTAINERS,
        )


def attributes_of(module: nn.Module) -> tuple[tuple[str, Value], ...]:
    """The attributes that configure a module: scalars and short sequences of them."""
    held = vars(module)
    described = [(name, _configuration(held[name])) for name in configuring(tuple(held)) if name[0] != "_"]
    return tuple([pair for pair in described if type(pair[1]) is not Opaque])


@cache
def configuring(names: tuple[str, ...]) -> tuple[str, ...]:
    """Of the names of a module's attributes, those that configure it; the same few tuples come again and again."""
    return tuple(name for name in names if name not in _BOOKKEEPING)


def _configuration(value: Any) -> Value:
    kind = type(value)
    if issubclass(kind, (list, tuple)) and len(value) <= _LONGEST_ATTRIBUTE:
        items = tuple(describe_plain(item) for item in value)
        if any(isinstance(item, Opaque) for item in items):
            return Opaque(class_name="")
        return Items(kind="list" if issubclass(kind, list) else "tuple", items=items)
    return describe_plain(value)
