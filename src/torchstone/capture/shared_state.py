"""Python state that modules share: what stands in objects, classes, files and functions that their code may look at.

Two equal modules may still do different things where code counts calls in an object that all layers have, or sets a
flag of a class or of a file between them. What can be seen of that is watched: a module call is a copy of an earlier
one only while nothing of it changed.
"""

import sys
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextvars import copy_context
from dis import opmap
from functools import cache, cached_property, partial
from gc import get_referents
from operator import is_, itemgetter
from random import Random
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any
from weakref import ref

from torch import Tensor, nn

from torchstone.capture.describe import is_plain
from torchstone.capture.layouts import configuring, is_of_others
from torchstone.foreign import foreign_code

_MOST_CONTAINERS = 500  # that are looked into
_LARGEST = 256  # entries of one: a table of labels is no state
_DEEPEST = 5
_NO_STATE = (Tensor, type, ModuleType)
_UNREADABLE = (Iterator, Random)  # whose state cannot be seen
_WITH_ENTRIES = (dict, list, set, deque)


class SharedState:
    """What modules share, found while they are looked at for the first time, and how often it changed."""

    def __init__(self) -> None:
        self._roots: dict[int, object] = {}  # by id, which must not be given again
        self._looked_into: dict[int, object] = {}
        self._containers: list[object] = []
        self._named: list[tuple[itemgetter[Any], Mapping[str, object]]] = []  # of classes, files and other modules
        self._namespaces: dict[int, object] = {}
        self._values: list[object] = []  # those of before; a tensor is not among them, or it would be kept alive
        self._ids: list[int] = []  # of all of them, where there are tensors
        self._with_tensors: list[int] = []  # the places of containers with tensors among the values
        self._changes = 0
        self._readable = True

    def add(self, value: object) -> None:
        """Watch an object that is an attribute of a module."""
        if id(value) not in self._roots and id(value) not in self._looked_into:
            self._roots[id(value)] = value
            self._look_into_root(value, 0)
            self._note()

    def add_class(self, kind: type) -> None:
        """Watch what the code of a class may share with that of others: its attributes, and variables of its file."""
        if id(kind) not in self._namespaces:
            self._add_class(kind)
            self._note()

    def changes(self) -> int:
        """How often something was found changed: while this is the same number, nothing did."""
        if not (self._readable and self._are_unchanged(self._all())):
            self._changes += 1
            self._readable = True
            self._looked_into.clear()
            self._containers.clear()
            for root in list(self._roots.values()):
                self._look_into_root(root, 0)
            for getter, values in list(self._named):
                self._look_into_each(getter, values)
            self._note()
        return self._changes

    def _are_unchanged(self, values: list[object]) -> bool:
        if self._ids:
            return list(map(id, values)) == self._ids
        return len(values) == len(self._values) and all(map(is_, values, self._values))

    def _note(self) -> None:
        self._with_tensors = []
        self._with_tensors = [place for place, value in enumerate(self._all()) if _contains_tensors(value)]
        values = self._all()
        self._values = [value for value in values if not isinstance(value, Tensor)]
        self._ids = list(map(id, values)) if len(self._values) < len(values) else []

    def _all(self) -> list[object]:
        values = get_referents(*self._containers)
        for getter, names in self._named:
            values += _values(getter, names)
        values += copy_context().values()
        for place in self._with_tensors:  # found where it stands each time, since to hold it would hold the tensors
            values += get_referents(values[place]) if place < len(values) else ()
        return values

    def _add_class(self, kind: type) -> None:
        for cls in kind.__mro__:
            if is_of_others(cls) or id(cls) in self._namespaces:
                continue
            self._namespaces[id(cls)] = cls
            self._add_names(vars(cls), tuple(name for name in vars(cls) if not name.startswith("__")))
            file = sys.modules.get(cls.__module__)
            if file is not None:
                self._add_names(vars(file), _variables_used(cls))

    def _add_names(self, values: Mapping[str, object], names: Sequence[str]) -> None:
        names = [name for name in names if name in values and _may_be_state(values[name])]
        if names:
            getter = itemgetter(*names, names[0])  # of one name alone it would give the value itself
            self._named.append((getter, values))
            self._look_into_each(getter, values)

    def _look_into_each(self, getter: "itemgetter[Any]", values: Mapping[str, object]) -> None:
        for value in _values(getter, values):
            self._look_into_root(value, 1)

    def _look_into_root(self, value: object, depth: int) -> None:
        with foreign_code() as ran:  # objects may answer questions by code of their own
            self._look_into(value, depth)
        self._readable = self._readable and ran.cause is None

    def _look_into(self, value: Any, depth: int) -> None:
        if is_plain(value) or issubclass(type(value), _NO_STATE) or id(value) in self._looked_into or depth > _DEEPEST:
            return
        if isinstance(value, nn.Module):  # of another place of the model: that of its children is theirs
            if id(value) not in self._namespaces:
                self._namespaces[id(value)] = value
                self._add_names(vars(value), configuring(tuple(vars(value))))
            return
        if isinstance(value, _WITH_ENTRIES):
            held = value.values() if isinstance(value, dict) else value
            if len(held) > _LARGEST or _contains_tensors(value):  # they would be kept alive here
                self._roots.pop(id(value), None)
                return
        if len(self._containers) >= _MOST_CONTAINERS:
            return
        self._readable = self._readable and not isinstance(value, _UNREADABLE)
        self._looked_into[id(value)] = value
        referents, parts = _inside(value)
        self._containers += referents
        for part in parts:
            self._look_into(part, depth + 1)


def _contains_tensors(value: object) -> bool:
    return issubclass(type(value), _WITH_ENTRIES) and any(issubclass(type(one), Tensor) for one in get_referents(value))


def _inside(value: Any) -> tuple[list[object], list[object]]:
    """What refers to the state of an object, and what is in it."""
    if isinstance(value, FunctionType):
        return [vars(value)], [*(value.__closure__ or ()), *(value.__defaults__ or ()), *vars(value).values()]
    if isinstance(value, ref):
        return [], [value()]
    if isinstance(value, MethodType):
        return [], [value.__self__, value.__func__]
    if isinstance(value, partial):
        return [], [value.func, *value.args, *value.keywords.values()]
    if isinstance(value, (*_WITH_ENTRIES, tuple)):  # a table of functions is a choice of code, not its state
        held = value.values() if isinstance(value, dict) else value
        own: list[object] = [] if isinstance(value, tuple) else [value]
        return own, [one for one in held if not isinstance(one, FunctionType)]
    if isinstance(value, CellType):
        return [value], get_referents(value)
    if is_of_others(type(value)):
        return [], []
    attributes: list[object] = [vars(value)] if hasattr(value, "__dict__") else []
    slots = [value] if any("__slots__" in vars(cls) for cls in type(value).__mro__[:-1]) else []
    held = [one for own in attributes for one in own.values()]  # type: ignore[attr-defined]
    return attributes + slots, [*held, *get_referents(*slots)]


_SETS_GLOBAL = opmap["STORE_GLOBAL"]


@cache
def _variables_used(cls: type) -> tuple[str, ...]:
    """Variables of a file that code of a class may find changed: what functions assign, and objects."""
    held = vars(sys.modules[cls.__module__])
    names: dict[str, None] = {}
    waiting = [code for value in vars(cls).values() for code in _codes_of(value)]
    seen = set(map(id, waiting))
    while waiting:
        code = waiting.pop()
        waiting += [one for one in code.co_consts if isinstance(one, CodeType)]
        names.update(dict.fromkeys(code.co_names))
        for name in code.co_names:
            for following in _codes_of(held.get(name)):
                if id(following) not in seen and following.co_filename == code.co_filename:
                    seen.add(id(following))
                    waiting.append(following)
    found = {name: held[name] for name in names if name in held}
    assigned = _assigned(cls.__module__) if any(map(is_plain, found.values())) else frozenset()
    return tuple(name for name, value in found.items() if name in assigned or not is_plain(value))


@cache
def _assigned(file: str) -> frozenset[str]:
    """Names that functions of a file may assign as its variables."""
    held = list(vars(sys.modules[file]).values())
    inside = [
        one for value in held if isinstance(value, type) and value.__module__ == file for one in vars(value).values()
    ]
    waiting = [code for value in (*held, *inside) for code in _codes_of(value)]
    names: set[str] = set()
    while waiting:
        code = waiting.pop()
        waiting += [one for one in code.co_consts if isinstance(one, CodeType)]
        if _SETS_GLOBAL in code.co_code[::2]:
            names.update(code.co_names)
    return frozenset(names)


def _codes_of(value: object) -> list[CodeType]:
    """The code of a function or method, and of what it is wrapped around."""
    function = value
    if isinstance(value, property):
        function = value.fget
    elif isinstance(value, (staticmethod, classmethod)):
        function = value.__func__
    elif isinstance(value, cached_property):
        function = value.func
    found: dict[int, CodeType] = {}
    while isinstance(function, FunctionType) and id(function) not in found:
        found[id(function)] = function.__code__
        function = vars(function).get("__wrapped__")
    return list(found.values())


def _may_be_state(value: object) -> bool:
    """Whether an attribute of a class or a variable of a file may be more than code."""
    kind = type(value)
    code = (
        issubclass(kind, (*_NO_STATE, nn.Module))
        or callable(value)
        or any("__get__" in vars(one) for one in kind.__mro__)
    )
    return is_plain(value) or not code


def _values(getter: "itemgetter[Any]", values: Mapping[str, object]) -> tuple[object, ...]:
    """The values of the names; none where one of them is gone."""
    try:
        found: tuple[object, ...] = getter(values)
    except KeyError:
        return ()
    return found
