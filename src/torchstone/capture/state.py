"""Objects that modules share and change, such as caches: what a layer sees of one, and what it does to it.

A cache keeps one entry per layer. A layer's own entry is part of what decides its trace; of the others only which kinds
of entry come before and after it matter, so that equal layers see equal states.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

from torch import Tensor, nn

from torchstone.capture.describe import is_plain

_DEEPEST = 8
_BY_IDENTITY = (nn.Module, type, FunctionType, MethodType, BuiltinFunctionType)

TensorKey = Callable[[Tensor], Hashable]
Path = tuple[Any, ...]  # attributes of objects, keys of dictionaries and places in lists; () is the entry itself


class NotComparableError(Exception):
    """A value holds something whose state cannot be told from outside."""


def is_state(value: Any) -> bool:
    """Whether a value is an object with a state of its own."""
    return hasattr(value, "__dict__") and not is_plain(value) and not isinstance(value, (Tensor, *_BY_IDENTITY))


def identity_key(value: Any) -> Hashable:
    """The key of a value that is equal only to itself."""
    return (type(value), id(value))


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A layer's own entry in a list or dictionary of a state object."""

    container: Any
    layer: int
    key: Hashable
    values: dict[Path, Any]  # tensors and plain values inside it
    rest: dict[Path, Hashable]  # the keys of other things inside it

    def set(self, path: Path, value: Any) -> None:
        """Change one part of the entry."""
        holder: Any = self.container
        place: Any = self.layer
        for step in path:
            holder, place = _inside(holder, place), step
        if is_state(holder):
            setattr(holder, place, value)
        else:
            holder[place] = value


def _inside(holder: Any, place: Any) -> Any:
    return getattr(holder, place) if is_state(holder) else holder[place]


def _parts(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """What an entry is made of: attributes of an object, and what lists and dictionaries among them hold."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _parts(item, (*path, key))
    elif isinstance(value, list):
        for place, item in enumerate(value):
            yield from _parts(item, (*path, place))
    elif is_state(value) and not path:
        for name, item in vars(value).items():
            yield from _parts(item, (name,))
    else:
        yield path, value


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What a call did to one part of an entry."""

    entry: int
    path: Path
    value: Any  # a tensor or a plain value


class EntryKeys:
    """Keys of other layers' entries, computed again only when an entry has changed."""

    def __init__(self, key_of_tensor: TensorKey) -> None:
        self.key_of_tensor = key_of_tensor
        self._numbers: dict[Hashable, int] = {}  # each distinct key once
        self._known: dict[int, tuple[tuple[int, ...], int, Any]] = {}  # by id: ids of its parts, key, what to keep

    def keys(self, entries: Iterable[Any]) -> frozenset[int]:
        """The distinct keys of some entries."""
        known = self._known
        return frozenset(
            [
                found[1]
                if (found := known.get(id(entry))) and found[0] == tuple(map(id, entry.__dict__.values()))
                else self._key(entry)
                for entry in entries
            ]
        )

    def _key(self, entry: Any) -> int:
        key = self._numbers.setdefault(key_of(entry, self.key_of_tensor), len(self._numbers))
        if is_state(entry):
            values = tuple(vars(entry).values())
            if all(is_plain(value) or isinstance(value, Tensor) for value in values):
                self._known[id(entry)] = (tuple(map(id, values)), key, (entry, values))
        return key


class StateView:
    """What layer number `layer` sees of one state object."""

    def __init__(self, value: Any, layer: int, entry_keys: EntryKeys) -> None:
        self.entries: list[Entry] = []
        self.objects: list[Any] = []  # the object and those inside it
        self._layer = layer
        self._entry_keys = entry_keys
        self.rest_key = self._walk(value, 0)
        self.own_key = tuple([entry.key for entry in self.entries])

    def own_tensors(self) -> Iterator[Tensor]:
        """The tensors in the layer's own entries, in order."""
        for entry in self.entries:
            yield from (value for value in entry.values.values() if isinstance(value, Tensor))

    def changes_to(self, after: "StateView") -> list[Change]:
        """What turned this view into a later one; raises where that cannot be done again elsewhere."""
        if self.rest_key != after.rest_key or len(self.entries) != len(after.entries):
            raise NotComparableError
        changes = []
        for position, (old, new) in enumerate(zip(self.entries, after.entries, strict=True)):
            if old.rest != new.rest or not old.values.keys() <= new.values.keys():
                raise NotComparableError
            changes += [
                Change(entry=position, path=path, value=value)
                for path, value in new.values.items()
                if path not in old.values or old.values[path] is not value
            ]
        return changes

    def _walk(self, value: Any, depth: int) -> Hashable:
        if depth > _DEEPEST:
            raise NotComparableError
        if isinstance(value, list) and self._has_entries(value):
            return self._walk_entries(value, value[: self._layer], value[self._layer + 1 :], len(value))
        if isinstance(value, dict) and value and all(type(name) is int for name in value):
            before = [value[number] for number in sorted(value) if number < self._layer]
            after = [value[number] for number in sorted(value) if number > self._layer]
            return self._walk_entries(value, before, after, self._layer in value)
        if not is_state(value):
            return key_of(value, self._entry_keys.key_of_tensor, depth)
        self.objects.append(value)
        return (type(value), *((name, self._walk(part, depth + 1)) for name, part in vars(value).items()))

    def _has_entries(self, value: list[Any]) -> bool:
        return len(value) > self._layer and not all(map(is_plain, value))

    def _walk_entries(self, container: Any, before: list[Any], after: list[Any], size: int) -> Hashable:
        keys = self._entry_keys.keys
        kind = None
        if size:
            own = container[self._layer]
            kind = type(own)
            self.objects.append(own)
            self.entries.append(self._entry(container, own))
        return (type(container), kind, keys(before), keys(after), size)

    def _entry(self, container: Any, own: Any) -> Entry:
        key_of_tensor = self._entry_keys.key_of_tensor
        values: dict[Path, Any] = {}
        rest: dict[Path, Hashable] = {}
        for path, part in _parts(own):
            if isinstance(part, Tensor) or is_plain(part):
                values[path] = part
            else:
                rest[path] = key_of(part, key_of_tensor)
        key = key_of(own, key_of_tensor)
        return Entry(container=container, layer=self._layer, key=key, values=values, rest=rest)


def key_of(value: Any, key_of_tensor: TensorKey, depth: int = 0) -> Hashable:
    """A hashable key of a value: equal for values that lead to equal traces."""
    if depth > _DEEPEST:
        raise NotComparableError
    if isinstance(value, Tensor):
        return key_of_tensor(value)
    if is_plain(value):
        return (type(value), value)
    if isinstance(value, list | tuple):
        return (type(value), *(key_of(item, key_of_tensor, depth + 1) for item in value))
    if isinstance(value, Mapping):
        parts = ((name, key_of(item, key_of_tensor, depth + 1)) for name, item in value.items())
        return (type(value), *parts)
    if not is_state(value):
        return identity_key(value)
    return (type(value), *((name, key_of(part, key_of_tensor, depth + 1)) for name, part in vars(value).items()))
