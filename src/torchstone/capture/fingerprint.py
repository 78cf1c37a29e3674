"""Fingerprints: everything that decides the trace of a module call (class, attributes, parameters, shared state)."""

from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from gc import get_referents
from itertools import accumulate, chain
from operator import is_
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any
from weakref import ref

from torch import Tensor, nn
from torch.utils._python_dispatch import _disable_current_modes

from torchstone.capture.describe import is_plain, is_plain_type
from torchstone.capture.module_tree import ModuleTree, configuring, is_sizes, layer_numbers
from torchstone.capture.tables import TensorColumns
from torchstone.capture.tensor_modes import StandInWorld

# Parameters and buffers that are something else for a while.


Exchange = Callable[[Tensor], Tensor]
_HOLDERS = ("_parameters", "_buffers")


class Exchanged(dict[str, Any]):
    """What a module holds, each tensor exchanged when it is looked at: most are never looked at."""

    __slots__ = ("exchange", "let_go")

    exchange: Exchange
    let_go: Callable[[Tensor], None]

    def __setitem__(self, name: str, tensor: Any) -> None:
        before = super().get(name)
        super().__setitem__(name, tensor)
        if before is not None and before is not tensor:
            self.let_go(before)

    def __delitem__(self, name: str) -> None:
        before = super().get(name)
        super().__delitem__(name)
        if before is not None:
            self.let_go(before)

    def __getitem__(self, name: str) -> object:
        tensor = super().__getitem__(name)
        return tensor if tensor is None else self.exchange(tensor)

    def get(self, name: str, default: object = None) -> object:
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
def exchanged(modules: list[nn.Module], exchange: Exchange, let_go: Callable[[Tensor], None]) -> Iterator[None]:
    """While open, each parameter and buffer of the modules is what `exchange` makes of it.

    `let_go` is called with each tensor of before that no module holds any more, because another one took its place.
    """
    before = [(vars(module), name, vars(module)[name]) for module in modules for name in _HOLDERS]

    def replaced(tensor: Tensor) -> None:
        if not any(tensor is one for attributes, name, _ in before for one in dict.values(attributes[name])):
            let_go(tensor)

    try:
        for attributes, name, entries in before:
            if entries:
                attributes[name] = held = Exchanged(entries)
                held.exchange, held.let_go = exchange, replaced
        yield
    finally:
        for attributes, name, entries in before:
            attributes[name] = entries


def original_items(entries: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """What a module held before anything was exchanged."""
    return iter(dict.items(entries))


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

    __slots__ = ("_attributes", "_container", "_entries", "_guards", "_ids", "_number", "_odd", "changing", "keys")

    def __init__(self, container: object, entries: list[object], number: Callable[[object], int]) -> None:
        self._container = container  # an id may be given again when its object is gone
        self._entries = entries
        self._number = number
        self._attributes: list[dict[str, object]] = [{}] * len(entries)
        self._ids: list[list[int]] = [[]] * len(entries)  # of what each entry holds
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
        if list(map(id, get_referents(*self._attributes))) != list(chain.from_iterable(self._ids)):
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
            self._attributes[place], self._ids[place] = attributes, ids
            self._guards[place] = [self._guard(place, value) for value in values]
        else:
            self._odd.add(place)
            self._attributes[place], self._ids[place], self._guards[place] = {}, [], None

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


# What of a module decides its trace: class, attributes, parameters and children, down to the leaves. Two modules with
# equal fingerprints, called alike, run the same ops. So a fingerprint has everything that code can branch on, and no
# more: values of weights are left out, since stand-in tensors have none to branch on; real buffers are in by value,
# since code may read them. Where it cannot be known what decides (hooks; objects of unknown classes, which equal only
# themselves), there is no fingerprint or an unequal one, and the module runs: a wrong "equal" would be a wrong trace,
# a wrong "different" only costs time.


_LONGEST_COMPARED = 4096  # elements of a small real buffer that are compared by value
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_HELD = ("_parameters", "_buffers", "_modules", *_HOOKS)  # dictionaries of a module that decide its fingerprint


class NoFingerprintError(Exception):
    """A module cannot be compared with another; `module` is the one below it, or itself, that is the reason."""

    def __init__(self, reason: str, module: nn.Module) -> None:
        super().__init__(reason)
        self.module = module


class Fingerprint:
    """One module as it is now, with everything below it."""

    __slots__ = ("key", "numbers", "reading", "tensors")

    def __init__(self, key: int, tensors: list[Tensor], numbers: list[int], reading: "_Reading | None" = None) -> None:
        self.tensors = tensors  # parameters, buffers and tensor attributes, in order
        self.numbers = numbers  # of the tensors
        self.reading = reading
        # Tied weights: modules that are alike but for which of their tensors are one do not run the same ops.
        ties = tuple(map(numbers.index, numbers)) if len(set(numbers)) < len(numbers) else ()
        self.key: Hashable = (key, ties)


class _Reading:
    """The modules that a fingerprint was made from, and what they had: while they have the same objects, it holds.

    To compare objects by identity is several times faster than to read them, and a block that runs is asked for again,
    as is each block in it. A reading does not last where an object could change and stay the same, or has tensors: to
    keep it would keep memory alive that the model lets go of.
    """

    __slots__ = ("_dictionaries", "_names", "_places", "_values", "lasting", "numbers", "rows", "tensors")

    def __init__(self) -> None:
        self.lasting = True
        self.tensors: list[Tensor] = []
        self.numbers: list[int] = []
        self.rows: list[_Row] = []  # the modules, in pre-order
        self._dictionaries: list[dict[str, Any]] = []
        self._names: list[str] = []
        self._values: list[object] = []
        self._places: list[int] = []  # of the first value of each dictionary

    def keep(self) -> None:
        """Remember what everything is now."""
        held = [vars(row.module) for row in self.rows]
        self._dictionaries = [one for own in held for one in (own, *map(own.__getitem__, _HELD))]
        self._places = list(accumulate(map(len, self._dictionaries), initial=0))
        self._names = list(chain.from_iterable(self._dictionaries))
        self._values = list(chain.from_iterable(map(dict.values, self._dictionaries)))  # not what stands in for them

    def fingerprint(self, place: int) -> Fingerprint | None:
        """The fingerprint of a module, if it has not changed."""
        row = self.rows[place]
        each = 1 + len(_HELD)
        now = self._dictionaries[place * each : row.end * each]
        part = slice(self._places[place * each], self._places[row.end * each])
        values = list(chain.from_iterable(map(dict.values, now)))
        if (
            len(values) != part.stop - part.start
            or not all(map(is_, values, self._values[part]))
            or list(chain.from_iterable(now)) != self._names[part]
        ):
            return None
        return Fingerprint(row.key, self.tensors[row.tensors], self.numbers[row.tensors])


class _Row:
    """One module of a reading."""

    __slots__ = ("end", "key", "module", "tensors")

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.key = -1
        self.end = 0  # the place after its last descendant
        self.tensors = slice(0)


class Fingerprints:
    """Makes fingerprints of the modules of one tree."""

    def __init__(self, tree: ModuleTree, tensors: TensorColumns, world: StandInWorld) -> None:
        self._tensors = tensors
        self._world = world
        self._numbers: dict[Hashable, int] = {}
        self._hung_twice = {id(tree.modules[number]) for number in tree.other_paths}
        self._kept: dict[int, tuple[_Reading, int]] = {}  # by id of a module: the last reading of it, and its place
        self._inert: dict[int, object] = {}  # objects without tensors, by id

    def of(self, module: nn.Module) -> Fingerprint:
        """The fingerprint of a module; equal ones have equal keys."""
        kept = self._kept.get(id(module))
        found = None if kept is None else kept[0].fingerprint(kept[1])
        if found is not None:
            return found
        self._kept.pop(id(module), None)
        reading = _Reading()
        key = self._key(module, reading)
        reading.numbers = list(map(self._tensors.number_of, reading.tensors))
        return Fingerprint(key, reading.tensors, reading.numbers, reading)

    def keep(self, found: Fingerprint) -> None:
        """Keep what a module was read as just now, since it runs: it and the modules in it are asked for again."""
        reading = found.reading
        if reading is not None and reading.lasting:
            reading.keep()
            self._kept.update((id(row.module), (reading, place)) for place, row in enumerate(reading.rows))
        found.reading = None

    def _key(self, module: nn.Module, reading: _Reading) -> int:
        attributes, rows = vars(module), reading.rows
        if id(module) in self._hung_twice:
            reason = "module objects at several places of the tree"
            raise NoFingerprintError(reason, module)
        if any(map(attributes.get, _HOOKS)):  # what a hook does cannot be seen, and it may count or change each call
            reason = "hooks"
            raise NoFingerprintError(reason, module)
        row, first_tensor = _Row(module), len(reading.tensors)
        rows.append(row)
        layers = layer_numbers(module)
        names = configuring(tuple(attributes))
        if layers:
            names = tuple([name for name in names if name not in layers])
        values = [attributes[name] for name in names]
        kinds = tuple(map(type, values))
        for place in _special_places(kinds):
            value = values[place]
            if kinds[place] is not tuple or not is_sizes(value):
                values[place] = self._special(value, module, reading)
        parameters, buffers = attributes["_parameters"], attributes["_buffers"]
        parts = [type(module), module.training, names, kinds, len(parameters), len(buffers), *values]
        for entries in (parameters, buffers):
            for name, tensor in original_items(entries) if entries else ():
                parts += (name, None if tensor is None else self._held(tensor, reading))
        for name, child in attributes["_modules"].items():
            parts += (name, None if child is None else self._key(child, reading))
        row.key = self._numbers.setdefault(tuple(parts), len(self._numbers))
        row.end, row.tensors = len(rows), slice(first_tensor, len(reading.tensors))
        return row.key

    def _special(self, value: Any, module: nn.Module, reading: _Reading) -> Hashable:
        """An attribute that is more than a plain value; a method of the module itself is known by its function."""
        kind = type(value)
        if kind is tuple and not _special_places(tuple(map(type, value))):
            return value
        if kind is MethodType and value.__self__ is module:  # configurations are slow to ask
            return (MethodType, value.__func__)
        if id(value) in self._inert:
            return identity_key(value)
        if not self._is_inert(value):
            reading.lasting = False
        return self._attribute(value, reading)

    def _is_inert(self, value: Any, depth: int = 0) -> bool:
        """Whether an attribute neither changes its key nor keeps memory alive while it is the same object."""
        kind = type(value)
        if is_plain(value) or id(value) in self._inert or issubclass(kind, (type, BuiltinFunctionType)):
            return True
        if depth > _DEEPEST or issubclass(kind, (Tensor, nn.Module, MethodType, partial)):
            return False
        if kind is FunctionType:
            return bool(value.__closure__ is None)
        if kind is tuple:
            return all(self._is_inert(part, depth + 1) for part in value)
        if depth and kind in (list, set, dict):  # in an object that is equal to itself alone
            parts = value.values() if kind is dict else value
            return all(self._is_inert(part, depth + 1) for part in parts)
        if issubclass(kind, (list, tuple, set, dict)) or not hasattr(value, "__dict__"):
            return False
        if not all(self._is_inert(one, depth + 1) for one in vars(value).values()):
            return False
        self._inert[id(value)] = value
        return True

    def _held(self, tensor: Tensor, reading: _Reading) -> Hashable:
        """A parameter or buffer: by its looks, and by value where it keeps its values."""
        reading.tensors.append(tensor)
        spec = self._tensors.exchanged.get(id(tensor))
        if spec is not None:
            return spec
        spec = self._tensors.spec_of[self._tensors.number_of(tensor)]
        if self._world.is_stand_in(tensor):
            reading.lasting = False
        elif self._world.stays_real(tensor):
            reading.lasting = False
            return (spec, _values(tensor))
        return spec

    def _constant(self, tensor: Tensor, reading: _Reading) -> Hashable:
        """A tensor that is an attribute like any other: it is used as it is."""
        reading.tensors.append(tensor)
        spec = self._tensors.spec_of[self._tensors.number_of(tensor)]
        return spec if self._world.is_stand_in(tensor) or tensor.is_meta else (spec, _values(tensor))

    def _attribute(self, value: Any, reading: _Reading) -> Hashable:
        kind = type(value)
        if is_plain(value):
            return (kind, value)
        if issubclass(kind, Tensor):
            return self._constant(value, reading)
        if kind in (list, tuple) and all(map(is_plain, value)):
            return (kind, tuple(value))
        if kind is dict and all(map(is_plain, value.values())):
            return (kind, tuple(value.items()))
        if kind is partial:
            given = (*value.args, *value.keywords.values())
            return (kind, identity_key(value.func), *value.keywords, *(self._attribute(one, reading) for one in given))
        return identity_key(value)


@lru_cache(maxsize=4096)
def _special_places(kinds: tuple[type, ...]) -> tuple[int, ...]:
    """Which of some values are not plain by their types; modules of a class have the same types again and again."""
    return tuple(place for place, kind in enumerate(kinds) if not is_plain_type(kind))


def _values(tensor: Tensor) -> Hashable:
    """The values of a small tensor; a large one is equal only to itself."""
    return id(tensor) if tensor.numel() > _LONGEST_COMPARED else values_of(tensor)
