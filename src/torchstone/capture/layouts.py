"""The attributes of modules by their names and types: what modules of a class have in common is worked out once."""

import sys
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import lru_cache
from operator import itemgetter
from types import FunctionType, GetSetDescriptorType
from typing import Any

from torch import Tensor, nn

from torchstone.capture.describe import is_plain_type

# A capture asks each module several questions about its attributes: which configure it, which are dictionaries that
# must be put back, which may contain tensors. The answers follow from the names and types of all attributes, and a
# model of thousands of modules has a few dozen different combinations of these.


LAYER_NUMBERS = frozenset(
    {"layer_idx", "layer_id", "layer_index", "layer_number", "layer_num", "block_idx", "block_index"}
)
GROWING = frozenset({list, dict, OrderedDict})
_TABLES = frozenset({OrderedDict, defaultdict, list, set, deque})
CONTAINERS = GROWING | {tuple}  # that are looked into for tensors
_INNER = GROWING | {defaultdict, set, deque, tuple}  # that are looked into for whatever may change
_OF_OTHERS = sys.stdlib_module_names - {"types", "collections", "dataclasses"} | {"torch"}
_SEQUENCES = (tuple, list)
ATOMS = frozenset({int, float, bool, str, type(None)})
_LARGEST = 4096  # entries of a container in which further ones are looked for
_DEEPEST = 5  # objects and containers in each other
_MOST_KEPT = 4096  # layouts, and classes
_SIZES = frozenset({(int,) * length for length in range(1, 5)})
_KNOWN_BY_VALUE = frozenset({int, bool, str, type(None)})  # together with their types
# What every module has for its own bookkeeping; the last is there while calls are intercepted, or after compile().
_BOOKKEEPING = frozenset(vars(nn.Module())) | {"training", "_compiled_call_impl"}
_Pick = Callable[[Sequence[Any]], tuple[Any, ...]]


class Layout:
    """What follows from the names and types of a module's attributes.

    `deciding` stands for those that decide what a module does, `public` for those that are written down. A pick takes
    the values of some from those of all, and `..._special` are the places among these that are not simply compared.
    """

    __slots__ = (
        "containing", "deciding", "deciding_special", "dictionaries", "numbers", "pick_deciding", "pick_public",
        "public", "public_names", "public_special", "reaching", "tables", "tensors",
    )  # fmt: skip

    def __init__(self, names: tuple[str, ...], kinds: tuple[type, ...]) -> None:
        own = [place for place, name in enumerate(names) if name not in _BOOKKEEPING]
        # What may number the layer that the module is in.
        self.numbers = tuple([names[place] for place in own if names[place] in LAYER_NUMBERS and kinds[place] is int])
        deciding = [place for place in own if names[place] not in self.numbers]
        self.deciding = _one(tuple([(names[place], kinds[place]) for place in deciding]))
        self.deciding_special = tuple([at for at, place in enumerate(deciding) if not is_plain_type(kinds[place])])
        self.pick_deciding = _picking(deciding)
        public = [place for place in own if names[place][0] != "_"]
        self.public = _one(tuple([(names[place], kinds[place]) for place in public]))
        self.public_names = tuple([names[place] for place in public])
        self.public_special = tuple([at for at, place in enumerate(public) if kinds[place] not in _KNOWN_BY_VALUE])
        self.pick_public = _picking(public)
        # What may change while the module stays as it is.
        self.dictionaries = _picking([place for place, kind in enumerate(kinds) if kind is dict])
        self.tables = _picking([place for place, kind in enumerate(kinds) if kind in _TABLES])
        # What is a tensor, and what may contain one.
        self.tensors = tuple([names[place] for place in own if issubclass(kinds[place], Tensor)])
        self.containing = tuple([names[place] for place in own if kinds[place] in CONTAINERS])
        self.reaching = tuple([names[place] for place in own if _reaches_further(kinds[place])])


_last: dict[type, tuple[list[str], list[type], Layout]] = {}  # by class: most of its modules are like the last one


def layout_of(module: nn.Module) -> Layout:
    """The layout of a module as it is now."""
    attributes = module.__dict__
    names, kinds = [*attributes], [*map(type, attributes.values())]
    last = _last.get(type(module))
    if last is None or last[0] != names or last[1] != kinds:
        if len(_last) >= _MOST_KEPT:
            _last.clear()
        last = _last[type(module)] = (names, kinds, _layout(tuple(names), tuple(kinds)))
    return last[2]


@lru_cache(maxsize=_MOST_KEPT)
def _layout(names: tuple[str, ...], kinds: tuple[type, ...]) -> Layout:
    return Layout(names, kinds)


@lru_cache(maxsize=_MOST_KEPT)
def _reaches_further(kind: type) -> bool:
    """Whether values of a type may have something inside that changes: containers, and objects with attributes."""
    if kind in _INNER:
        return True
    if is_plain_type(kind) or issubclass(kind, (Tensor, nn.Module, FunctionType)) or is_of_others(kind):
        return False
    tables = [vars(cls)["__dict__"] for cls in kind.__mro__ if "__dict__" in vars(cls)]  # a class may answer by code
    answers = kind.__getattribute__ is object.__getattribute__ and all(
        type(one) is GetSetDescriptorType for one in tables
    )
    return kind.__dictoffset__ != 0 and answers


def is_of_others(kind: type) -> bool:
    """Whether a class is Python's or torch's own: its objects, such as locks and logs, are not looked into."""
    return kind.__module__.partition(".")[0] in _OF_OTHERS


def inner_containers(modules: Sequence[nn.Module], layouts: Sequence[Layout]) -> Iterator[Any]:
    """What attributes of modules reach and may be changed in place: containers in them, and the tables of objects.

    A container that is an attribute itself is not among them.
    """
    seen: set[int] = set()
    for module, layout in zip(modules, layouts, strict=True):
        for name in layout.reaching:
            value = module.__dict__[name]
            if id(value) in seen or (type(value) in _SEQUENCES and ATOMS.issuperset(map(type, value))):  # sizes, names
                continue
            yield from _inside(value, seen, 0)


def _inside(value: Any, seen: set[int], depth: int) -> Iterator[Any]:
    if id(value) in seen:
        return
    seen.add(id(value))
    if type(value) not in _INNER:
        value = object.__getattribute__(value, "__dict__")
        if type(value) is not dict or id(value) in seen:
            return
        seen.add(id(value))
        yield value
    elif depth and type(value) is not tuple:
        yield value
    if depth < _DEEPEST and len(value) <= _LARGEST:  # a larger one is a table, such as a vocabulary
        parts = parts_of(value)
        further = {kind for kind in {*map(type, parts)} if _reaches_further(kind)}
        for part in parts if further else ():
            if type(part) in further:
                yield from _inside(part, seen, depth + 1)


def parts_of(container: Collection[object]) -> Collection[object]:
    """The values in a container."""
    return container.values() if isinstance(container, dict) else container


class NamesAndTypes:
    """Stands for equal tuples of names and types, and is compared by identity, which is quicker."""

    __slots__ = ("of",)

    def __init__(self, of: tuple[tuple[str, type], ...]) -> None:
        self.of = of


@lru_cache(maxsize=_MOST_KEPT)
def _one(of: tuple[tuple[str, type], ...]) -> NamesAndTypes:
    return NamesAndTypes(of)


def _picking(places: Sequence[int]) -> _Pick:
    """A function that takes the values at some places."""
    if len(places) > 1:  # of one place alone it would give the value itself
        return itemgetter(*places)
    return lambda values: tuple([values[place] for place in places])


def is_sizes(value: tuple[object, ...]) -> bool:
    """Whether a tuple has nothing but integers, as kernel sizes have: it is then known by its value."""
    return tuple(map(type, value)) in _SIZES


@lru_cache(maxsize=_MOST_KEPT)
def configuring(names: tuple[str, ...]) -> tuple[str, ...]:
    """Of the names of a module's attributes, those that configure it; the same few tuples come again and again."""
    return tuple(name for name in names if name not in _BOOKKEEPING)
