"""Op calls of any program as they happen, each distinct one kept once with where it came from and how often."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torchstone.backends.interception import KernelOpMode
from torchstone.backends.op_roles import Role, role_of
from torchstone.capture.describe import Describer
from torchstone.capture.op_schema import OpSchema, schema_of
from torchstone.capture.recording_places import ModulePlace, ModulePlaces, call_site
from torchstone.capture.recording_values import facts_of
from torchstone.capture.tensors import storage_pointer
from torchstone.record.config import Configuration, Occurrence, SeenConfiguration, TensorFacts, in_order
from torchstone.record.op import Phase
from torchstone.record.value import Argument

_PLAIN = (int, bool, str, type(None))
LOOKS = 8  # calls of one configuration whose values are looked at: enough for a range, cheap in a long run


class Place(NamedTuple):
    """Where a call came from."""

    phase: Phase
    module: ModulePlace
    site: str


class SeenCall:
    """One distinct op call: what went in, and where and how often it was called."""

    __slots__ = ("configuration", "facts", "looks", "places", "role")

    def __init__(self, configuration: Configuration, role: Role) -> None:
        self.configuration = configuration
        self.role = role
        self.facts: list[TensorFacts] = []
        self.looks = 0
        self.places: Counter[Place] = Counter()

    def record(self, *, source: str, run: str, model: str = "") -> SeenConfiguration:
        """What was seen, as a record: `source` is what was traced, `run` which trace of it.

        Without the name of a model, the class of the outermost module stands for it.
        """
        occurrences = tuple(
            Occurrence(
                source=source,
                run=run,
                model=model or place.module.root,
                phase=place.phase,
                module_path=place.module.path,
                call_site=place.site,
                count=count,
            )
            for place, count in self.places.items()
        )
        return in_order(
            SeenConfiguration(configuration=self.configuration, occurrences=occurrences, facts=tuple(self.facts))
        )


class Recording:
    """What a program called while the recording was open; `beside` is open at the same times."""

    def __init__(self, *, looks: int = LOOKS, beside: Callable[[], AbstractContextManager[None]] = nullcontext) -> None:
        self.seen: dict[Any, SeenCall] = {}
        self._looks = looks
        self._beside = beside
        self._modules = ModulePlaces()
        self._lock = threading.Lock()

    @property
    def calls(self) -> int:
        """All op calls so far."""
        return sum(seen.places.total() for seen in self.seen.values())

    def records(self, *, source: str, run: str, model: str = "") -> tuple[SeenConfiguration, ...]:
        """Everything that was seen, in the order it was first seen."""
        return tuple(seen.record(source=source, run=run, model=model) for seen in self.seen.values())

    @contextmanager
    def opened(self) -> Iterator[None]:
        """While open, every op call of this thread and of threads started meanwhile is recorded."""
        with ExitStack() as kept:
            kept.enter_context(self._beside())
            kept.enter_context(self._modules.followed())
            kept.enter_context(self._threads_followed())
            kept.enter_context(torch.compiler.set_stance("force_eager"))
            kept.enter_context(_Mode(self))
            yield

    @contextmanager
    def _threads_followed(self) -> Iterator[None]:
        """Dispatch modes belong to a thread: a new thread gets one of its own."""
        original = threading.Thread.run
        recording = self

        def run(self: threading.Thread) -> None:
            with _Mode(recording):
                original(self)

        threading.Thread.run = run  # type: ignore[method-assign]
        try:
            yield
        finally:
            threading.Thread.run = original  # type: ignore[method-assign]

    def add(self, func: Any, schema: OpSchema, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Write a call down, before it runs: an op may change what it was given."""
        bound = _bound(schema, args, kwargs)
        tensors: list[Tensor] = []
        values = tuple([_key_of(value, tensors) for _, value in bound])
        aliases = aliases_among(tensors)
        key = (func, values, aliases)
        backward = torch._C._current_graph_task_id() != -1
        place = Place(
            phase=Phase.BACKWARD if backward else Phase.FORWARD, module=self._modules.current(), site=call_site()
        )
        with self._lock:
            seen = self.seen.get(key)
            if seen is None:
                seen = self.seen[key] = SeenCall(_configuration(schema, bound, aliases), role_of(func))
            seen.places[place] += 1
            if seen.looks < self._looks:
                seen.looks += 1
                found = (facts_of(tensor, number) for number, tensor in enumerate(tensors))
                seen.facts.extend(fact for fact in found if fact is not None)


class _Mode(KernelOpMode):
    """Hands every op call of one thread to a recording."""

    def __init__(self, recording: Recording) -> None:
        super().__init__()
        self._recording = recording

    def run_op(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Record an op, and run it."""
        self._recording.add(func, schema_of(func), args, kwargs)
        return func(*args, **kwargs)


def _bound(schema: OpSchema, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """All arguments under their schema names, in schema order, defaults filled in: equal calls are bound equally."""
    if not schema.argument_names:  # a higher-order op
        return [*((str(position), value) for position, value in enumerate(args)), *kwargs.items()]
    given = len(args)
    return [
        (name, args[position] if position < given else kwargs[name] if name in kwargs else schema.defaults.get(name))
        for position, name in enumerate(schema.argument_names)
    ]


def _configuration(
    schema: OpSchema, bound: list[tuple[str, Any]], aliases: tuple[tuple[int, ...], ...]
) -> Configuration:
    describer = Describer()
    arguments = tuple(Argument(name=name, value=describer.describe(value)) for name, value in bound)
    return Configuration(op=schema.name, arguments=arguments, aliases=aliases)


def aliases_among(tensors: list[Tensor]) -> tuple[tuple[int, ...], ...]:
    """Groups of tensors, by number, that share memory."""
    if len(tensors) < 2:  # noqa: PLR2004 - it takes two to share
        return ()
    groups: dict[int, list[int]] = {}
    for number, tensor in enumerate(tensors):
        pointer = storage_pointer(tensor)
        if pointer is not None:
            groups.setdefault(pointer, []).append(number)
    if len(groups) == len(tensors):
        return ()
    return tuple(tuple(group) for group in groups.values() if len(group) > 1)


def _key_of(value: Any, tensors: list[Tensor]) -> Any:
    """What tells one call's arguments from another's, quickly; the tensors met are appended in order."""
    if isinstance(value, Tensor):
        tensors.append(value)
        strided = value.layout is torch.strided
        geometry = (value.stride(), value.storage_offset()) if strided else value.layout
        return (value.shape, value.dtype, geometry, value.device, value.requires_grad, type(value))
    kind = type(value)
    if kind in _PLAIN:
        return (kind, value)
    if isinstance(value, float | complex):
        return (kind, repr(value))  # NaN is not equal to itself, and 0.0 is equal to -0.0
    if isinstance(value, list | tuple):
        return (kind, *[_key_of(item, tensors) for item in value])
    if isinstance(value, dict):
        return (dict, *[(name, _key_of(item, tensors)) for name, item in value.items()])
    try:
        hash(value)
    except TypeError:
        return (kind, id(value))
    return (kind, value)
