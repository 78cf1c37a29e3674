"""Fingerprints: everything that decides the trace of a module call (class, attributes, parameters, shared state)."""

from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache, partial
from itertools import accumulate, chain
from operator import is_
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any, SupportsIndex

import torch
from torch import Tensor, nn

from torchstone.capture.describe import is_plain, is_plain_type
from torchstone.capture.layouts import is_sizes, layout_of
from torchstone.capture.module_tree import ModuleTree, layer_numbers
from torchstone.capture.shared_state import SharedState
from torchstone.capture.state_views import identity_key, values_of
from torchstone.capture.tables import TensorColumns
from torchstone.capture.tensor_modes import StandInWorld
from torchstone.foreign import foreign_code

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
        if before is not None and tensor is self.exchange(before):
            return  # the same one again: `self.steps += 1` changes it in place and assigns it
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

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[object, ...]:
        """A copy that the model makes of a module is a plain one, of what runs: it is no part of the capture."""
        return dict, (dict(self.items()),)


def _held_in(entries: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a module holds, and not what stands in for it; code may have put a mapping of its own there."""
    return dict.copy(entries) if isinstance(entries, dict) else entries


Buffers = dict[int, dict[str, Tensor | None]]  # those of modules, by their places


@contextmanager
def exchanged(modules: list[nn.Module], exchange: Exchange, let_go: Callable[[Tensor], None]) -> Iterator[Buffers]:
    """While open, each parameter and buffer of the modules is what `exchange` makes of it.

    `let_go` is called with each tensor of before that no module holds any more, because another one took its place.
    Gives, once it is closed, the buffers that modules did not hold before.
    """
    tables = [module.__dict__ for module in modules]
    before = [(own, name, own[name]) for name in _HOLDERS for own in tables]
    changed: Buffers = {}

    def replaced(tensor: Tensor) -> None:
        if not any(tensor is one for attributes, name, _ in before for one in _held_in(attributes[name]).values()):
            let_go(tensor)

    try:
        for attributes, name, entries in before:
            if entries:
                attributes[name] = held = Exchanged(entries)
                held.exchange, held.let_go = exchange, replaced
        yield changed
    finally:
        for place, (attributes, name, entries) in enumerate(before[len(tables) :]):
            held = attributes[name]
            if held is entries and not entries:
                continue
            known = {} if held is entries else entries  # of which there were none
            if len(held) != len(known) or not all(map(is_, _held_in(held).values(), known.values())):
                changed[place] = {one: found for one, found in _held_in(held).items() if found is not known.get(one)}
        for attributes, name, entries in before:
            attributes[name] = entries


# What of a module decides its trace: class, attributes, parameters and children, down to the leaves. Two modules with
# equal fingerprints, called alike, run the same ops. So a fingerprint has everything that code can branch on, and no
# more: values of weights are left out, since stand-in tensors have none to branch on; real buffers are in by value,
# since code may read them. Where it cannot be known what decides (hooks; objects of unknown classes, which equal only
# themselves), there is no fingerprint or an unequal one, and the module runs: a wrong "equal" would be a wrong trace,
# a wrong "different" only costs time.


_DEEPEST = 8
_LONGEST_COMPARED = 4096  # elements of a small real buffer that are compared by value
_BEFORE_VALUES = 3  # parts of a key that stand before the values of attributes
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


_Row = tuple[nn.Module, int, int, slice]  # a module, its key, the place after its last descendant, its tensors


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
        self.rows: list[_Row] = []  # in pre-order
        self._dictionaries: list[dict[str, Any]] = []
        self._names: list[str] = []
        self._values: list[object] = []
        self._places: list[int] = []  # of the first value of each dictionary

    def keep(self) -> None:
        """Remember what everything is now."""
        held = [vars(module) for module, _, _, _ in self.rows]
        self._dictionaries = [one for own in held for one in (own, *map(own.__getitem__, _HELD))]
        self._places = list(accumulate(map(len, self._dictionaries), initial=0))
        self._names = list(chain.from_iterable(self._dictionaries))
        self._values = list(chain.from_iterable(map(dict.values, self._dictionaries)))  # not what stands in for them

    def fingerprint(self, place: int) -> Fingerprint | None:
        """The fingerprint of a module, if it has not changed."""
        _, key, end, tensors = self.rows[place]
        each = 1 + len(_HELD)
        now = self._dictionaries[place * each : end * each]
        part = slice(self._places[place * each], self._places[end * each])
        values = list(chain.from_iterable(map(dict.values, now)))
        if (
            len(values) != part.stop - part.start
            or not all(map(is_, values, self._values[part]))
            or list(chain.from_iterable(now)) != self._names[part]
        ):
            return None
        return Fingerprint(key, self.tensors[tensors], self.numbers[tensors])


class Fingerprints:
    """Makes fingerprints of the modules of one tree."""

    def __init__(self, tree: ModuleTree, tensors: TensorColumns, world: StandInWorld) -> None:
        self._tensors = tensors
        self._world = world
        self._numbers: dict[Hashable, int] = {}
        self._hung_twice = {id(tree.modules[number]) for number in tree.other_paths}
        self._kept: dict[int, tuple[_Reading, int]] = {}  # by id of a module: the last reading of it, and its place
        self._inert: dict[int, object] = {}  # objects without tensors, by id
        self._classes: set[type] = set()
        self.shared = SharedState()

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
            self._kept.update((id(row[0]), (reading, place)) for place, row in enumerate(reading.rows))
        found.reading = None

    def forget_readings(self) -> None:
        """Keep nothing of what modules were read as."""
        self._kept.clear()

    def _key(self, module: nn.Module, reading: _Reading) -> int:
        attributes, kind, rows = module.__dict__, type(module), reading.rows
        if id(module) in self._hung_twice:
            reason = "module objects at several places of the tree"
            raise NoFingerprintError(reason, module)
        if any(map(attributes.get, _HOOKS)):  # what a hook does cannot be seen, and it may count or change each call
            reason = "hooks"
            raise NoFingerprintError(reason, module)
        if kind not in self._classes:
            self._classes.add(kind)
            self.shared.add_class(kind)
        place, first_tensor = len(rows), len(reading.tensors)
        rows.append((module, -1, 0, slice(0)))  # until everything below it was read
        layout = layout_of(module)
        parts: list[object] = [kind, module.training, layout.deciding]
        parts += layout.pick_deciding(tuple(attributes.values()))
        for special in layout.deciding_special:
            value = parts[_BEFORE_VALUES + special]
            if type(value) is not tuple or not is_sizes(value):
                parts[_BEFORE_VALUES + special] = self._special(value, module, reading)
        if layout.numbers:
            layers = layer_numbers(module)
            parts += [(name, attributes[name]) for name in layout.numbers if name not in layers]
        for name in ("_parameters", "_buffers"):
            entries = attributes[name]
            parts.append(len(entries))
            reading.lasting &= isinstance(entries, dict)  # another mapping may give another tensor each time
            for held, tensor in _held_in(entries).items() if entries else ():
                parts += (held, None if tensor is None else self._held(tensor, reading))
        for name, child in attributes["_modules"].items():
            parts += (name, None if child is None else self._key(child, reading))
        key = self._numbers.setdefault(tuple(parts), len(self._numbers))
        rows[place] = (module, key, len(rows), slice(first_tensor, len(reading.tensors)))
        return key

    def _special(self, value: Any, module: nn.Module, reading: _Reading) -> Hashable:
        """An attribute that is more than a plain value; a method of the module itself is known by its function."""
        kind = type(value)
        if kind is tuple and not _special_places(tuple(map(type, value))):
            return value
        if kind is MethodType and value.__self__ is module:  # configurations are slow to ask
            return (MethodType, value.__func__)
        if id(value) in self._inert:
            return identity_key(value)
        with foreign_code((NoFingerprintError,)) as ran:  # objects may answer questions by code of their own
            if isinstance(value, Iterator):
                reason = "iterators"  # where they stand cannot be read
                raise NoFingerprintError(reason, module)
            if not self._is_inert(value):
                reading.lasting = False
            return self._attribute(value, reading)
        reason = f"an attribute that cannot be read ({type(ran.raised).__name__})"
        raise NoFingerprintError(reason, module)

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
        is_new = not self._tensors.was_held(tensor)
        if self._world.is_stand_in(tensor) or (is_new and tensor.is_meta):
            reading.lasting = False
        elif is_new or self._world.stays_real(tensor):
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
            self.shared.add(value.func)
            return (kind, identity_key(value.func), *value.keywords, *(self._attribute(one, reading) for one in given))
        self.shared.add(value)
        if kind in (list, dict) and len(value) <= _LONGEST_COMPARED:  # with tensors: a flag may stand beside them
            parts = value.items() if kind is dict else enumerate(value)
            return (identity_key(value), *((name, _part_key(part)) for name, part in parts))
        return identity_key(value)


def _part_key(part: object) -> Hashable:
    return (type(part), part) if is_plain(part) else id(part)


@lru_cache(maxsize=4096)
def _special_places(kinds: tuple[type, ...]) -> tuple[int, ...]:
    """Which of some values are not plain by their types; modules of a class have the same types again and again."""
    return tuple(place for place, kind in enumerate(kinds) if not is_plain_type(kind))


def _values(tensor: Tensor) -> Hashable:
    """The values of a small tensor; a large one is equal only to itself."""
    is_long = tensor.numel() > _LONGEST_COMPARED or tensor.layout is not torch.strided
    return id(tensor) if is_long else values_of(tensor)
