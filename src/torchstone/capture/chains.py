"""Chains of 2 to 5 op calls that feed each other, recorded as a program runs; each distinct one is kept once."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain, count
from typing import NamedTuple, Protocol

import torch
from msgspec.structs import replace
from torch import Tensor, nn
from torch.utils.weak import WeakTensorKeyDictionary

from torchstone.backends.op_info import Role
from torchstone.capture.ops import OpSchema
from torchstone.capture.tables import storage_pointer
from torchstone.record.chain import MOST_STEPS, Step, configuration_of, result_of_step
from torchstone.record.config import Configuration, Occurrence, SeenConfiguration, TensorFacts, in_order
from torchstone.record.tensor import TensorSpec
from torchstone.record.value import Argument, Value, replace_tensors, tensors_in

# A chain is a path: each step takes a tensor that the step before gave. Ops that draw random numbers, that make
# tensors, or whose results have sizes that depend on values are no steps: what they give is an input. A tensor that was
# written to after its step gave it (through a view, or by an op without a result) is an input, too.

MOST_PATHS = 16  # chains of each length that end at one call: joins of many branches would have thousands
_STEPS = (Role.COMPUTE, Role.VIEW)


class Seen(Protocol):
    """What the recording keeps of a distinct call."""

    configuration: Configuration
    facts: list[TensorFacts]
    role: Role


class Place(Protocol):
    """Where a call came from."""

    def __hash__(self) -> int: ...

    def occurrence(self, *, source: str, run: str, model: str, count: int) -> Occurrence:
        """The place as a record."""


_Source = tuple[int, str, int]  # of a tensor: the call that gave it or -1, the name of the result, the tensor's number
_Links = tuple[tuple[tuple[int, str], ...], ...]  # per step and tensor: (step, result), or (-1 - input, "")


class _Call(NamedTuple):
    """A call that chains may contain; it knows nothing of earlier ones, so that those can be forgotten."""

    number: int
    seen: Seen
    sources: tuple[_Source, ...]


_Path = tuple[_Call, ...]


class _Given(NamedTuple):
    """Where a tensor comes from, and the paths that end there."""

    call: _Call
    paths: list[_Path]
    result: str


class _Begun(NamedTuple):
    """A call that is about to run."""

    call: _Call
    before: list[list[_Path]]  # paths of each call that gave one of its tensors


class _SeenChain:
    __slots__ = ("calls", "links", "places")

    def __init__(self, calls: _Path, links: _Links) -> None:
        self.calls = [call.seen for call in calls]
        self.links = links
        self.places: Counter[Place] = Counter()


class ChainLog:
    """The chains of a recording."""

    def __init__(self) -> None:
        self.skipped = 0  # chains beyond MOST_PATHS
        self._seen: dict[object, _SeenChain] = {}
        self._given = WeakTensorKeyDictionary()  # tensor -> _Given, by identity
        self._numbers = WeakTensorKeyDictionary()  # tensor -> its number, by identity
        self._written: dict[int, int] = {}  # storage -> the last call that wrote to it
        self._counter = count()
        self._tensor_counter = count()
        self._lock = threading.Lock()

    def begin(self, seen: Seen, schema: OpSchema, tensors: Sequence[Tensor]) -> _Begun | None:
        """Look at a call before it runs; None for one that is no step of a chain."""
        is_step = seen.role in _STEPS and not schema.reads_values and schema.argument_names
        if not is_step or not all(map(_is_plain, tensors)):
            return None
        with self._lock:
            given = [self._giver(tensor) for tensor in tensors]
            sources = tuple(
                (-1 if one is None else one.call.number, "" if one is None else one.result, self._number(tensor))
                for one, tensor in zip(given, tensors, strict=True)
            )
            before = {one.call.number: one.paths for one in given if one is not None}
            return _Begun(_Call(next(self._counter), seen, sources), list(before.values()))

    def end(
        self, begun: _Begun | None, schema: OpSchema, written: Sequence[Tensor], result: object, place: Place
    ) -> None:
        """Keep the chains that end with a call, after it ran."""
        with self._lock:
            number = next(self._counter) if begun is None else begun.call.number
            for tensor in written:
                self._given.pop(tensor, None)
                pointer = storage_pointer(tensor)
                if pointer is not None:
                    self._written[pointer] = number
            results = list(_results(schema, result)) if begun is not None else []
            if begun is None or not results:
                return
            paths = self._kept(begun, place)
            for name, tensor in results:
                self._given[tensor] = _Given(begun.call, paths, name)
                self._numbers[tensor] = next(self._tensor_counter)

    def records(self, *, source: str, run: str, model: str = "") -> tuple[SeenConfiguration, ...]:
        """Every chain, in the order it was first seen."""
        return tuple(
            _record(
                one,
                tuple(
                    place.occurrence(source=source, run=run, model=model, count=calls)
                    for place, calls in one.places.items()
                ),
            )
            for one in self._seen.values()
        )

    def _number(self, tensor: Tensor) -> int:
        number: int | None = self._numbers.get(tensor)
        if number is None:
            number = self._numbers[tensor] = next(self._tensor_counter)
        return number

    def _giver(self, tensor: Tensor) -> _Given | None:
        given: _Given | None = self._given.get(tensor)
        is_stale = given is not None and self._written.get(storage_pointer(tensor) or 0, -1) > given.call.number
        return None if is_stale else given

    def _kept(self, begun: _Begun, place: Place) -> list[_Path]:
        """The paths that end with a call, after those with a computation were counted."""
        kept: list[_Path] = [(begun.call,)]
        lengths: Counter[int] = Counter()
        for path in chain.from_iterable(begun.before):
            lengths[len(path)] += 1
            if len(path) >= MOST_STEPS:
                continue
            if lengths[len(path)] > MOST_PATHS:
                self.skipped += 1
                continue
            kept.append((*path, begun.call))
            if any(one.seen.role is Role.COMPUTE for one in kept[-1]):
                self._count(kept[-1], place)
        return kept

    def _count(self, path: _Path, place: Place) -> None:
        links = _links_of(path)
        key = (tuple(id(call.seen) for call in path), links)
        known = self._seen.get(key)
        if known is None:
            known = self._seen[key] = _SeenChain(path, links)
        known.places[place] += 1


def _is_plain(tensor: Tensor) -> bool:
    return type(tensor) in (Tensor, nn.Parameter) and tensor.layout is torch.strided and tensor.device.type != "meta"


def _results(schema: OpSchema, result: object) -> Iterator[tuple[str, Tensor]]:
    """The tensors that an op gave, by position, or position_part in a list."""
    parts = result if schema.returns > 1 and isinstance(result, list | tuple) else [result]
    for position, part in enumerate(parts):
        if isinstance(part, Tensor):
            yield str(position), part
        elif isinstance(part, list | tuple):
            yield from ((f"{position}_{place}", one) for place, one in enumerate(part) if isinstance(one, Tensor))


def _links_of(path: _Path) -> _Links:
    steps = {call.number: step for step, call in enumerate(path)}
    inputs: dict[int, int] = {}  # number of the tensor -> input of the chain
    return tuple(
        tuple(
            (steps[giver], name) if giver in steps else (-1 - inputs.setdefault(number, len(inputs)), "")
            for giver, name, number in call.sources
        )
        for call in path
    )


def _record(seen_chain: _SeenChain, occurrences: tuple[Occurrence, ...]) -> SeenConfiguration:
    """The chain as a configuration; facts are those of the calls it is made of."""
    inputs: list[int] = []  # for each tensor among the arguments its input
    facts: list[TensorFacts] = []
    steps = []
    for seen, links in zip(seen_chain.calls, seen_chain.links, strict=True):
        numbers = {place: len(inputs) + new for new, place in enumerate(p for p, one in enumerate(links) if one[0] < 0)}
        facts += [replace(fact, tensor=numbers[fact.tensor]) for fact in seen.facts if fact.tensor in numbers]
        inputs += [one[0] for one in links if one[0] < 0]
        steps.append(_step(seen.configuration, links))
    groups: dict[int, list[int]] = {}
    for number, one in enumerate(inputs):
        groups.setdefault(one, []).append(number)
    aliases = tuple(tuple(group) for group in groups.values() if len(group) > 1)
    return in_order(
        SeenConfiguration(configuration=configuration_of(steps, aliases), occurrences=occurrences, facts=tuple(facts))
    )


def _step(configuration: Configuration, links: tuple[tuple[int, str], ...]) -> Step:
    remaining = iter(links)

    def linked(spec: TensorSpec) -> Value:
        step, name = next(remaining)
        return spec if step < 0 else result_of_step(step, name)

    arguments = tuple(
        Argument(name=one.name, value=replace_tensors(one.value, linked)) for one in configuration.arguments
    )
    assert sum(len(tensors_in(one.value)) for one in configuration.arguments) == len(links)  # noqa: S101 - as described
    return Step(op=configuration.op, arguments=arguments)
