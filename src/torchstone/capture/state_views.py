"""What a layer sees of an object that all layers are given, such as a cache, and what it does to it."""

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from gc import get_referents
from itertools import chain
from operator import is_
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any
from weakref import ref

from torch import Tensor, nn
from torch.utils._python_dispatch import _disable_current_modes

from torchstone.capture.describe import is_plain

# Objects that modules share and change, such as caches: what a layer sees of one, and what it does to it. A cache
# keeps one entry per layer. A layer's own entry is part of what decides its trace; of the others only which kinds of
# entry come before and after it matter, so that equal layers see equal states.


_DEEPEST = 8
_BY_IDENTITY = (nn.Module, type, FunctionType, MethodType, BuiltinFunctionType)

TensorKey = Callable[[Tensor], Hashable]
Path = tuple[object, ...]  # attributes of objects, keys of dictionaries and places in lists; () is the entry itself


def values_of(tensor: Tensor) -> tuple[object, ...]:
    """The values of a tensor; reading them is none of the model's ops."""
    with _disable_current_modes():
        return tuple(tensor.flatten().tolist())


class NotComparableError(Exception):
    """A value contains something whose state cannot be read from outside."""


def is_state(value: object) -> bool:
    """Whether a value is an object with a state of its own."""
    return hasattr(value, "__dict__") and not is_plain(value) and not isinstance(value, (Tensor, *_BY_IDENTITY))


def identity_key(value: object) -> Hashable:
    """The key of a value that is equal only to itself."""
    return (type(value), id(value))


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A layer's own entry in a list or dictionary of a state object."""

    container: object
    layer: int
    key: Hashable
    values: dict[Path, object]  # plain values inside it, and references to tensors: the entry may let go of them
    rest: dict[Path, Hashable]  # the keys of other things inside it

    def set(self, path: Path, value: object) -> None:
        """Change one part of the entry."""
        holder: Any = self.container
        place: Any = self.layer
        for step in path:
            holder, place = _inside(holder, place), step
        if is_state(holder):
            setattr(holder, place, value)
        else:
            holder[place] = value


def _inside(holder: Any, place: Any) -> object:
    return getattr(holder, place) if is_state(holder) else holder[place]


def _parts(value: object, path: Path = ()) -> Iterator[tuple[Path, object]]:
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
    value: object  # a tensor or a plain value


class EntryKeys:
    """Keys of other layers' entries, computed again only when an entry has changed."""

    def __init__(self, key_of_tensor: TensorKey) -> None:
        self.key_of_tensor = key_of_tensor
        self._numbers: dict[Hashable, int] = {}  # each distinct key once
        self._seen: dict[int, _Entries] = {}  # by id of the container

    def around(self, container: object, entries: list[object], own: slice) -> tuple[frozenset[int], frozenset[int]]:
        """The distinct keys of the entries before and after a layer's own."""
        seen = self._seen.get(id(container))
        if seen is None or not seen.has(entries):
            seen = self._seen[id(container)] = _Entries(container, entries, self._number)
        else:
            seen.look_again()
        seen.changing.update(range(*own.indices(len(entries))))
        return frozenset(seen.keys[: own.start]), frozenset(seen.keys[own.stop :])

    def _number(self, entry: object) -> int:
        return self._numbers.setdefault(key_of(entry, self.key_of_tensor), len(self._numbers))


class _Entries:
    """The entries of one container, with their keys: which of them changed is found by a look at all at once.

    A cache has as many entries as the model has layers, and each layer asks for the others: what is done for each
    entry in Python would be most of a capture. Entries hold plain values and tensors; others are read each time.
    """

    __slots__ = (
        "_all_ids", "_attributes", "_container", "_entries", "_guards", "_ids", "_number", "_odd", "changing", "keys",
    )  # fmt: skip

    def __init__(self, container: object, entries: list[object], number: Callable[[object], int]) -> None:
        self._container = container  # an id may be given again when its object is gone
        self._entries = entries
        self._number = number
        self._attributes: list[dict[str, object]] = [{}] * len(entries)
        self._ids: list[list[int]] = [[]] * len(entries)  # of what each entry holds
        self._all_ids: list[int] | None = None  # one after another, while they are the same
        self._guards: list[object] = [None] * len(entries)
        self._odd: set[int] = set()
        self.keys = [0] * len(entries)
        self.changing: set[int] = set()  # places that may have changed since: own entries, and those of dead tensors
        for place in range(len(entries)):
            self._read(place)

    def has(self, entries: list[object]) -> bool:
        """Whether these are the same objects."""
        return len(entries) == len(self._entries) and all(map(is_, entries, self._entries))

    def look_again(self) -> None:
        """Read the entries again that have changed."""
        changing, self.changing = self.changing, set()
        for place in changing | self._odd:
            self._read(place)
        # All values in one call, as a loop over them takes several times as long; `_read` made sure that it gives them.
        if self._all_ids is None:
            self._all_ids = list(chain.from_iterable(self._ids))
        if list(map(id, get_referents(*self._attributes))) != self._all_ids:
            for place, (now, before) in enumerate(zip(self._attributes, self._ids, strict=True)):
                if list(map(id, now.values())) != before:
                    self._read(place)

    def _read(self, place: int) -> None:
        entry = self._entries[place]
        self.keys[place] = self._number(entry)
        attributes = vars(entry) if is_state(entry) else {}
        values = list(attributes.values())
        ids = list(map(id, values))
        known = bool(values) and all(is_plain(value) or isinstance(value, Tensor) for value in values)
        if known and list(map(id, get_referents(attributes))) == ids:
            self._odd.discard(place)
            self._guards[place] = [self._guard(place, value) for value in values]
        else:
            self._odd.add(place)
            attributes, ids, self._guards[place] = {}, [], None
        if ids != self._ids[place]:
            self._all_ids = None
        self._attributes[place], self._ids[place] = attributes, ids

    def _guard(self, place: int, value: object) -> object:
        """Keeps the id of a plain value taken, and knows of a tensor when it dies: it is not to be kept alive."""
        return ref(value, lambda _: self.changing.add(place)) if isinstance(value, Tensor) else value


class StateView:
    """What layer number `layer` sees of one state object."""

    def __init__(self, value: object, layer: int, entry_keys: EntryKeys) -> None:
        self.entries: list[Entry] = []
        self.objects: list[object] = []  # the object and those inside it
        self._layer = layer
        self._entry_keys = entry_keys
        self.rest_key = self._walk(value, 0)
        self.own_key = tuple([entry.key for entry in self.entries])

    def own_tensors(self) -> Iterator[Tensor | None]:
        """The tensors in the layer's own entries, in order; None for one that nothing holds any more."""
        for entry in self.entries:
            yield from (value() for value in entry.values.values() if isinstance(value, ref))

    def changes_to(self, after: "StateView") -> list[Change]:
        """What turned this view into a later one; raises where that cannot be done again elsewhere."""
        if self.rest_key != after.rest_key or len(self.entries) != len(after.entries):
            raise NotComparableError
        changes = []
        for position, (old, new) in enumerate(zip(self.entries, after.entries, strict=True)):
            if old.rest != new.rest or not old.values.keys() <= new.values.keys():
                raise NotComparableError
            changes += [
                Change(entry=position, path=path, value=_held(value))
                for path, value in new.values.items()
                if path not in old.values or not _is_same(old.values[path], value)
            ]
        return changes

    def _walk(self, value: object, depth: int) -> Hashable:
        if depth > _DEEPEST:
            raise NotComparableError
        if isinstance(value, list) and self._has_entries(value):
            return self._walk_entries(value, value.copy(), slice(self._layer, self._layer + 1), len(value))
        if isinstance(value, dict) and value and all(type(name) is int for name in value):
            begin, has_own = sum(number < self._layer for number in value), self._layer in value
            own = slice(begin, begin + has_own)
            return self._walk_entries(value, [value[number] for number in sorted(value)], own, has_own)
        if not is_state(value):
            return key_of(value, self._entry_keys.key_of_tensor, depth)
        self.objects.append(value)
        return (type(value), *((name, self._walk(part, depth + 1)) for name, part in vars(value).items()))

    def _has_entries(self, value: list[object]) -> bool:
        return len(value) > self._layer and not all(map(is_plain, value))

    def _walk_entries(self, container: Any, entries: list[object], own: slice, size: int) -> Hashable:
        kind = None
        for entry in entries[own]:
            kind = type(entry)
            self.objects.append(entry)
            self.entries.append(self._entry(container, entry))
        return (type(container), kind, *self._entry_keys.around(container, entries, own), size)

    def _entry(self, container: object, own: object) -> Entry:
        key_of_tensor = self._entry_keys.key_of_tensor
        values: dict[Path, object] = {}
        rest: dict[Path, Hashable] = {}
        for path, part in _parts(own):
            if isinstance(part, Tensor):
                values[path] = ref(part)
            elif is_plain(part):
                values[path] = part
            else:
                rest[path] = key_of(part, key_of_tensor)
        key = key_of(own, key_of_tensor)
        return Entry(container=container, layer=self._layer, key=key, values=values, rest=rest)


def _held(value: object) -> object:
    """A plain value, or the tensor that is referred to."""
    return value() if isinstance(value, ref) else value


def _is_same(old: object, new: object) -> bool:
    """Whether an entry still has what it had; a tensor that is gone was let go of."""
    if isinstance(old, ref) and isinstance(new, ref):
        return old() is not None and old() is new()
    return old is new


def key_of(value: object, key_of_tensor: TensorKey, depth: int = 0) -> Hashable:
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
