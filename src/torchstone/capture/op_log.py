"""Op calls of any program, each distinct one kept once with its origin, its count and statistics of its values."""

import os
import sys
import sysconfig
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import cache
from pathlib import Path
from threading import local
from types import FrameType
from typing import NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from torchstone.backends.interception import CallModule, KernelOp, KernelOpMode, OpArguments, OpKeywords, intercepted
from torchstone.backends.op_info import Role, role_of
from torchstone.capture.chains import ChainLog
from torchstone.capture.describe import Describer
from torchstone.capture.ops import OpSchema, nodes_so_far, schema_of
from torchstone.capture.run import credit, credited
from torchstone.capture.tables import storage_pointer
from torchstone.numerics.value_facts import value_facts
from torchstone.record.config import Configuration, Occurrence, SeenConfiguration, TensorFacts, in_order
from torchstone.record.op import Phase
from torchstone.record.value import Argument


def facts_of(tensor: Tensor, number: int) -> TensorFacts | None:
    """Range, NaN and Inf, share of zeros of tensor `number` of a call; None where the values cannot be seen."""
    known = value_facts(tensor)
    return None if known is None else TensorFacts(tensor=number, **known)


# Where an op call comes from: the module that is running and the line of the user's code.


_TORCH = str(Path(torch.__file__).parent) + os.sep
_OURS = str(Path(__file__).parent.parent) + os.sep
_STANDARD = sysconfig.get_paths()["stdlib"] + os.sep
_INSTALLED = (sysconfig.get_paths()["purelib"] + os.sep, sysconfig.get_paths()["platlib"] + os.sep)


class ModulePlace(NamedTuple):
    """A module by the class of the outermost one and its path below that."""

    root: str
    path: str


_OUTSIDE = ModulePlace("", "")


class ModulePlaces:
    """Follows which module is running on each thread, by its path below the outermost one."""

    def __init__(self) -> None:
        self._threads = local()
        self._paths_below: WeakKeyDictionary[nn.Module, dict[int, str]] = WeakKeyDictionary()

    def current(self) -> "ModulePlace":
        """The innermost module running; in a backward pass the one whose op is undone."""
        if torch._C._current_graph_task_id() != -1:
            owner = credited()
            return owner if isinstance(owner, ModulePlace) else _OUTSIDE
        stack = self._stack()
        return stack[-1][1] if stack else _OUTSIDE

    @contextmanager
    def followed(self) -> Iterator[None]:
        """While open, every call of a module is seen."""

        def follow(module: nn.Module, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
            return self._call(really_call, module, args, kwargs)

        with intercepted(None, follow) as really_call:
            yield

    def _call(self, call: CallModule, module: nn.Module, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
        stack = self._stack()
        root, caller = (stack[0][0], stack[-1][1].path) if stack else (module, "")
        place = ModulePlace(type(root).__name__, self._path(root, module, caller))
        stack.append((module, place))
        begun = nodes_so_far()
        try:
            result = call(module, args, kwargs)
        finally:
            stack.pop()
        if torch.is_grad_enabled():
            credit(begun, _tensors_of(result), place)
        return result

    def _path(self, root: nn.Module, module: nn.Module, caller: str) -> str:
        """The path below the root; a module that is no part of it goes by its class below its caller."""
        if module is root:
            return ""
        paths = self._paths_below.get(root)
        if paths is None or id(module) not in paths:
            paths = self._paths_below[root] = {id(part): path for path, part in root.named_modules()}
        below = f"{caller}." if caller else ""
        return paths.get(id(module), f"{below}{type(module).__name__}")

    def _stack(self) -> list[tuple[nn.Module, ModulePlace]]:
        stack: list[tuple[nn.Module, ModulePlace]] | None = getattr(self._threads, "stack", None)
        if stack is None:
            stack = self._threads.stack = []
        return stack


def _tensors_of(value: object) -> list[Tensor]:
    """The tensors in plain containers and in objects that are mappings, as model outputs are."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, list | tuple):
        return []
    return [tensor for item in value for tensor in _tensors_of(item)]


def call_site() -> str:
    """File and line of the innermost code that is neither torch's, torchstone's nor Python's own; "" without any."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        place = _place_of(frame.f_code.co_filename)
        if place:
            return f"{place}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


def _place_of(file: str) -> str:
    """A file as it is written down, "" if it is not the user's: below the current folder or the installed packages."""
    try:
        return _place_below(file, str(Path.cwd()) + os.sep)
    except FileNotFoundError:  # the user's program removed the folder that it runs in, and may go on
        return _place_below(file, "")


@cache
def _place_below(file: str, here: str) -> str:
    if file.startswith(("<", _TORCH, _OURS)):
        return ""
    for installed in _INSTALLED:
        if file.startswith(installed):
            return file.removeprefix(installed)
    if file.startswith(_STANDARD):
        return ""
    return file.removeprefix(here)


# Op calls of any program as they happen, each distinct one kept once with where it came from and how often.


_PLAIN = (int, bool, str, type(None))
_LONGEST_ERROR = 300
LOOKS = 8  # calls of one configuration whose values are looked at: enough for a range, cheap in a long run


class Place(NamedTuple):
    """Where a call came from."""

    phase: Phase
    module: ModulePlace
    site: str

    def occurrence(self, *, source: str, run: str, model: str, count: int) -> Occurrence:
        """The place as a record: `source` is what was traced, `run` which trace of it.

        Without the name of a model, the class of the outermost module stands for it.
        """
        return Occurrence(
            source=source,
            run=run,
            model=model or self.module.root,
            phase=self.phase,
            module_path=self.module.path,
            call_site=self.site,
            count=count,
        )


class SeenCall:
    """One distinct op call: what went in, and where and how often it was called."""

    __slots__ = ("configuration", "facts", "looks", "places", "refusal", "refusals", "role")

    def __init__(self, configuration: Configuration, role: Role) -> None:
        self.configuration = configuration
        self.role = role
        self.facts: list[TensorFacts] = []
        self.looks = 0
        self.refusals = 0  # calls that raised
        self.refusal = ""  # what the first of them raised
        self.places: Counter[Place] = Counter()

    def record(self, *, source: str, run: str, model: str = "") -> SeenConfiguration:
        """What was seen, as a record."""
        occurrences = tuple(
            place.occurrence(source=source, run=run, model=model, count=count) for place, count in self.places.items()
        )
        return in_order(
            SeenConfiguration(
                configuration=self.configuration,
                occurrences=occurrences,
                facts=tuple(self.facts),
                refused=self.refusal if self.refusals == self.places.total() else "",
            )
        )


class Recording:
    """What a program called while the recording was open; `beside` is open at the same times."""

    def __init__(
        self,
        *,
        looks: int = LOOKS,
        beside: Callable[[], AbstractContextManager[None]] = nullcontext,
        chains: ChainLog | None = None,
    ) -> None:
        self.seen: dict[object, SeenCall] = {}
        self.chains = chains  # None: only single calls are recorded
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

    def run(self, func: KernelOp, args: OpArguments, kwargs: OpKeywords) -> object:
        """Run an op, and write its call down."""
        schema = schema_of(func)
        seen, tensors, place = self.add(func, schema, args, kwargs)
        begun = None if self.chains is None else self.chains.begin(seen, schema, tensors)
        try:
            result = func(*args, **kwargs)
        except Exception as error:
            seen.refusals += 1
            seen.refusal = seen.refusal or " ".join(f"{type(error).__name__}: {error}".split())[:_LONGEST_ERROR]
            raise
        if self.chains is None:
            return result
        given = dict(_bound(schema, args, kwargs)) if schema.written else {}
        written = _tensors_of([given[name] for name in schema.written])
        self.chains.end(begun, schema, written, result, place)
        return result

    def add(
        self, func: object, schema: OpSchema, args: tuple[object, ...], kwargs: Mapping[str, object]
    ) -> tuple[SeenCall, list[Tensor], Place]:
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
        return seen, tensors, place


class _Mode(KernelOpMode):
    """Hands every op call of one thread to a recording."""

    def __init__(self, recording: Recording) -> None:
        super().__init__()
        self._recording = recording

    def run_op(self, func: KernelOp, args: OpArguments, kwargs: OpKeywords) -> object:
        """Record an op, and run it."""
        return self._recording.run(func, args, kwargs)


def _bound(schema: OpSchema, args: tuple[object, ...], kwargs: Mapping[str, object]) -> list[tuple[str, object]]:
    """All arguments under their schema names, in schema order, defaults filled in: equal calls are bound equally."""
    if not schema.argument_names:  # a higher-order op
        return [*((str(position), value) for position, value in enumerate(args)), *kwargs.items()]
    given = len(args)
    return [
        (name, args[position] if position < given else kwargs[name] if name in kwargs else schema.defaults.get(name))
        for position, name in enumerate(schema.argument_names)
    ]


def _configuration(
    schema: OpSchema, bound: list[tuple[str, object]], aliases: tuple[tuple[int, ...], ...]
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


def _key_of(value: object, tensors: list[Tensor]) -> object:
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
