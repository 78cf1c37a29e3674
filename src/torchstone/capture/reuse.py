"""Reuse: a module call identical to one already traced takes its rows instead of running again."""

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from weakref import ref

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import _disable_current_modes

from torchstone.capture.describe import is_plain, rebuilt
from torchstone.capture.fingerprint import Fingerprint, Fingerprints, NoFingerprintError
from torchstone.capture.module_tree import IndexReads, ModuleTree, is_of_torch
from torchstone.capture.ops import OpRecorder
from torchstone.capture.rows import Copy, Extent, Original, Rows
from torchstone.capture.shape_rules import Looks
from torchstone.capture.state_views import (
    Change,
    EntryKeys,
    NotComparableError,
    StateView,
    is_state,
    key_of,
    values_of,
)
from torchstone.capture.tables import CallColumns
from torchstone.capture.tensor_modes import StandInWorld
from torchstone.units import many

# Repetition is free: a module call equal to one already traced is noted as its copy instead of running again. Equal
# means: same fingerprint (class, attributes, parameters, children), same inputs (shapes, strides, types, which of
# them share memory, values where they are known), same view of shared state, same modes. A call is a template for
# others only if nothing in it could go another way: no value read back, no use of its layer number, nothing touched
# that is neither its own nor an input. When in doubt, it runs.


_FEW_VALUES = 16
_flash_allowed, _efficient_allowed = torch._C._get_flash_sdp_enabled, torch._C._get_mem_efficient_sdp_enabled
_math_allowed = torch._C._get_math_sdp_enabled
_function_modes, _dispatch_modes = torch._C._len_torch_function_stack, torch._C._len_torch_dispatch_stack
_CLASSES = 3  # that a note names
_VERY_MANY = 100  # modules of one kind: copies of them also keep the trace short
RunModule = Callable[[nn.Module, tuple[object, ...], dict[str, object]], object]


@dataclass(slots=True, kw_only=True)
class Asked:
    """A module call that may be taken over or become a template."""

    key: Hashable
    given: Hashable  # what the arguments are
    module: nn.Module
    fingerprint: Fingerprint
    arguments: list[Tensor]  # the tensors among the arguments
    states: list[StateView]
    objects: list[object]  # the state objects among the arguments
    numbers: list[int]  # of the external tensors
    real: set[int]  # those of them that are no stand-ins
    site: int  # the line it was called from
    weak: list[ref[Tensor]] | None = None  # the arguments and the tensors of the modules, while the call runs

    def external(self) -> list[Tensor | None]:
        """Every tensor the call may touch that was there before it, in an order equal for equal calls.

        None stands for one that the call let go of.
        """
        known = (*self.arguments, *self.fingerprint.tensors) if self.weak is None else [one() for one in self.weak]
        return [*known, *(t for state in self.states for t in state.own_tensors())]

    def hold_weakly(self) -> None:
        """Keep no tensor alive from now on: the call may let go of what it was given, and of what its modules hold."""
        self.weak = list(map(ref, (*self.arguments, *self.fingerprint.tensors)))
        self.arguments, self.fingerprint.tensors = [], []


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """The result of a call that was taken over."""

    result: object


class Stub:
    """Stands for a tensor in what a template gives: its number and its looks."""

    __slots__ = ("looks", "number")

    def __init__(self, number: int, looks: Looks) -> None:
        self.number, self.looks = number, looks


@dataclass(slots=True, kw_only=True)
class Template:
    """A call that was run and may be taken over.

    Its tensors are not held, or memory would be alive that the model let go of: stubs stand for them, or other tensors
    which look the same and have the same numbers.
    """

    module: nn.Module
    fingerprint: Hashable
    numbers: list[int]  # of the tensors that were there before
    objects: list[object]  # the state objects among the arguments
    original: Original
    result: object
    changes: list[list[Change]]  # for each state object
    rise_bytes: int  # how far the live bytes rose above those at its start
    checked: bool = False  # its module was found unchanged after the run


@dataclass(frozen=True, slots=True, kw_only=True)
class _Watermark:
    """Counters that a call must not move if it is to be a template."""

    values: int
    layers: int
    dice: int
    shared: int

    def changed_to(self, after: "_Watermark") -> str:
        """What the call looked at that may differ for another one; "" for nothing."""
        if self.values != after.values:
            return "values read back from tensors"
        if self.layers != after.layers:
            return "code that looks at its layer number"
        if self.shared != after.shared:
            return "Python state that modules share, which changed or cannot be read"
        return "random numbers while training" if self.dice != after.dice else ""


class ReuseOff:
    """Why modules were run that others may be equal to."""

    def __init__(self) -> None:
        self._modules: defaultdict[str, set[int]] = defaultdict(set)  # by reason: ids of the modules that ran
        self._culprits: defaultdict[str, dict[int, str]] = defaultdict(dict)  # by reason: class names by id

    def add(self, reason: str, module: nn.Module, culprit: nn.Module | None = None) -> None:
        """Note one module; the culprit is the one below it that is the reason."""
        found = module if culprit is None else culprit
        self._modules[reason].add(id(module))
        self._culprits[reason][id(found)] = type(found).__name__

    def notes(self) -> tuple[str, ...]:
        """One line for each reason, the most frequent first; one module of each class has no other to be reused for."""
        reasons = sorted(self._modules, key=lambda reason: (-len(self._modules[reason]), reason))
        return tuple(
            self._note(reason) for reason in reasons if max(Counter(self._culprits[reason].values()).values()) > 1
        )

    def _note(self, reason: str) -> str:
        classes = Counter(self._culprits[reason].values()).most_common()
        shown = [f"{name} x {count}" for name, count in sorted(classes, key=lambda one: (-one[1], one[0]))[:_CLASSES]]
        more = ", ..." if len(classes) > _CLASSES else ""
        return f"reuse is off for {many(len(self._modules[reason]), 'module')}: {reason} ({', '.join(shown)}{more})"


class Reuse:
    """Finds, learns and replays module calls."""

    def __init__(self, world: StandInWorld, tree: ModuleTree, recorder: OpRecorder, calls: CallColumns) -> None:
        self._world = world
        self._tree = tree
        self._recorder = recorder
        self._tensors = recorder.tensors
        self.rows = Rows(tensors=recorder.tensors, ops=recorder.ops, calls=calls)
        self._fingerprints = Fingerprints(tree, recorder.tensors, world)
        self._entry_keys = EntryKeys(self._key_of_tensor)
        self._index_reads = IndexReads(self._is_known_state)
        self._known_states: dict[int, object] = {}
        self._kept_alive: dict[int, Tensor] = {}
        self._templates: dict[Hashable, Template] = {}
        alike = tree.look_counts()
        self._sole = {number for number, count in alike.items() if count == 1}
        self._quick = {id(module) for module in tree.modules if _is_quick(module, alike[id(module)])}
        self._modes_around = (0, 0)
        self.reused_ops = 0
        self.off = ReuseOff()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """While open, reads of layer numbers are seen."""
        self._modes_around = (_function_modes(), _dispatch_modes() + 1)  # the recorder is still to be opened
        with self._index_reads.watching(self._tree.with_layer_numbers()):
            yield

    def close(self) -> None:
        """Let go of templates, and of what refers back to this object."""
        self._templates.clear()
        del self._entry_keys, self._index_reads, self._fingerprints

    def take_over(
        self, module: nn.Module, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> Replayed | Asked | None:
        """What an equal call gave, or what decides the trace of this one; None where that is unknown."""
        if id(module) in self._quick:
            return None
        if id(module) in self._sole:
            self._sole.remove(id(module))  # the first call; a later one may be equal to the one before it
            return None
        if (_function_modes(), _dispatch_modes()) != self._modes_around:  # code of the model sees each op
            self.off.add("modes of torch that the model opens", module)
            return None
        try:
            asked = self._ask(module, args, kwargs)
        except NoFingerprintError as error:
            self.off.add(str(error), module, culprit=error.module)
            return None
        except NotComparableError:
            self.off.add("arguments that cannot be compared", module)
            return None
        template = self._find(asked)
        if template is None:
            return asked
        if _is_simple(template.result):  # nothing of the model's own runs to make one again
            return Replayed(result=self._replay(template, asked))
        with _disable_current_modes():
            return Replayed(result=self._replay(template, asked))

    def _ask(self, module: nn.Module, args: tuple[object, ...], kwargs: dict[str, object]) -> Asked:
        fingerprint = self._fingerprints.of(module)
        arguments: list[Tensor] = []
        objects: list[object] = []
        given = (self._argument_key(args, arguments, objects), self._argument_key(kwargs, arguments, objects))
        states = [self._view(value, module) for value in objects]
        seen = tuple((state.own_key, state.rest_key) for state in states)
        asked = Asked(
            key=None,
            given=given,
            module=module,
            fingerprint=fingerprint,
            arguments=arguments,
            states=states,
            objects=objects,
            numbers=[],
            real=set(),
            site=self._recorder.sites.of_call,
        )
        number_of, is_stand_in = self._tensors.number_of, self._world.is_stand_in
        in_states = [held for state in states for held in state.own_tensors() if held is not None]
        asked.numbers = [*map(number_of, arguments), *fingerprint.numbers, *map(number_of, in_states)]
        held = (*arguments, *fingerprint.tensors, *in_states)
        asked.real = {number for number, one in zip(asked.numbers, held, strict=True) if not is_stand_in(one)}
        # Which tensors are one, and which share memory, decides what views and in-place ops do. It also makes a copy
        # well defined: each tensor and storage of the template stands for exactly one here.
        storages = [self._tensors.storage_of[number] for number in asked.numbers]
        line = -1 if is_of_torch(module) else asked.site  # a copy has the lines of what it is a copy of
        around = (*_modes(), self._fingerprints.shared.changes(), line)
        asked.key = (fingerprint.key, given, seen, _sharing(asked.numbers), _sharing(storages), around)
        return asked

    def _argument_key(self, value: object, tensors: list[Tensor], objects: list[object]) -> Hashable:
        if isinstance(value, Tensor):
            tensors.append(value)
            return self._key_of_tensor(value)
        if is_plain(value):
            return (type(value), value)
        if isinstance(value, list | tuple):
            return (type(value), *(self._argument_key(item, tensors, objects) for item in value))
        if isinstance(value, dict):
            return (dict, *((name, self._argument_key(item, tensors, objects)) for name, item in value.items()))
        if is_state(value):
            objects.append(value)
            return (type(value), len(objects))
        return key_of(value, self._key_of_tensor)

    def _view(self, value: object, module: nn.Module) -> StateView:
        layer = self._tree.layer_of(module)
        if layer is None:
            raise NotComparableError
        view = StateView(value, layer, self._entry_keys)
        for part in view.objects:
            self._known_states[id(part)] = part
        return view

    def _is_known_state(self, value: object) -> bool:
        return id(value) in self._known_states

    def _key_of_tensor(self, tensor: Tensor) -> Hashable:
        """Identify a tensor by its spec if its values are unknown, by the values if they are few, else by itself."""
        spec = self._tensors.spec_number(tensor)
        if self._world.is_unknown(tensor):
            return spec
        if tensor.numel() <= _FEW_VALUES:
            return (spec, values_of(tensor))
        if self._tensors.is_known(tensor):
            return (spec, "number", self._tensors.number_of(tensor), tensor._version)
        self._kept_alive[id(tensor)] = tensor  # an id may be given again when its object is gone
        return (spec, "id", id(tensor), tensor._version)

    # --- learning ---

    def learn(self, asked: Asked, args: tuple[object, ...], kwargs: dict[str, object], run: RunModule) -> object:
        """Run a call, and keep it as a template if it can be one."""
        self._fingerprints.keep(asked.fingerprint)
        asked.hold_weakly()
        start = self.rows.here()
        before = self._watermark(asked.module)
        window = self._tensors.lifetimes.open_window()
        try:
            result = run(asked.module, args, kwargs)
        finally:
            rise = self._tensors.lifetimes.close_window(window)
        reason = before.changed_to(self._watermark(asked.module)) or (
            "lists or dictionaries that the call was given and changed"
            if self._are_changed(asked, args, kwargs)
            else self._keep(asked, start, result, rise)
        )
        if reason:
            self.off.add(reason, asked.module)
        return result

    def forget_readings(self) -> None:
        """Hold no tensors of modules that are to be read again anyway."""
        self._fingerprints.forget_readings()

    def _watermark(self, module: nn.Module) -> "_Watermark":
        dice = hash(random.getstate()) if module.training else 0
        shared = self._fingerprints.shared.changes()
        return _Watermark(values=self._recorder.value_reads, layers=self._index_reads.count, dice=dice, shared=shared)

    def _are_changed(self, asked: Asked, args: tuple[object, ...], kwargs: dict[str, object]) -> bool:
        """Whether the call changed a container that it was given; a copy of the call would leave it as it is."""
        if not any(isinstance(value, (list, dict, tuple)) for value in (*args, *kwargs.values())):
            return False
        return asked.given != (self._argument_key(args, [], []), self._argument_key(kwargs, [], []))

    def _keep(self, asked: Asked, start: Extent, result: object, rise: int) -> str:
        """Keep a call as a template, or say why it cannot be one."""
        try:
            after = [self._view(value, asked.module) for value in asked.objects]
            changes = [old.changes_to(new) for old, new in zip(asked.states, after, strict=True)]
            given_back = self._storages_given_back(asked, result, changes)
        except NotComparableError:
            return "results or state that cannot be compared"
        extent = self.rows.since(start)
        if not self._tensors.lifetimes.alive(extent.storages) <= given_back:
            return "tensors that outlive the call"  # code put them where a copy of the call would put none
        used = self.rows.used(extent, set(asked.numbers), asked.real, self._tree.span(asked.module))
        if used is None:
            return "tensors or modules from outside"
        original = Original(
            extent=extent,
            used=used,
            module=self._tree.number_of[id(asked.module)],
            parent=self._recorder.current_call,
            site=asked.site,
        )
        self._templates[asked.key] = Template(
            module=asked.module,
            fingerprint=asked.fingerprint.key,
            numbers=asked.numbers,
            objects=asked.objects,
            original=original,
            result=rebuilt(result, self._stub if _is_simple(result) else self._look_alike),
            changes=[
                [replace(one, value=rebuilt(one.value, self._stub)) for one in per_state] for per_state in changes
            ],
            rise_bytes=rise,
        )
        return ""

    def _look_alike(self, part: object) -> object:
        """Another tensor with the same looks and number, as some classes of results ask for; an object stays."""
        if not isinstance(part, Tensor):
            return part
        made = self._world.make_unseen(part)
        self._tensors.mark(made, self._tensors.number_of(part))
        return made

    def _stub(self, part: object) -> object:
        """A stub for a tensor that is no more than its looks."""
        looks = self._world.looks_of(part) if isinstance(part, Tensor) else None
        return self._look_alike(part) if looks is None else Stub(self._tensors.number_of(part), looks)  # type: ignore[arg-type]

    def _storages_given_back(self, asked: Asked, result: object, changes: list[list[Change]]) -> set[int]:
        """Inputs must still be what they were; what comes out must be stand-ins, inputs or objects passed in."""
        for number, tensor in zip(asked.numbers, asked.external(), strict=True):
            if tensor is not None and self._tensors.number_of(tensor) != number:
                raise NotComparableError
        allowed = {id(value) for value in (*asked.external(), *asked.objects)}
        storages: set[int] = set()

        def look(part: object) -> object:
            if id(part) not in allowed and not (isinstance(part, Tensor) and self._world.is_unknown(part)):
                raise NotComparableError
            if isinstance(part, Tensor):
                storages.add(self._tensors.storage_of[self._tensors.number_of(part)])
            return part

        rebuilt(result, look)
        rebuilt([change.value for per_state in changes for change in per_state], look)
        return storages

    # --- replaying ---

    def _find(self, asked: Asked) -> Template | None:
        """An equal call that was run, if there is one that still holds."""
        template = self._templates.get(asked.key)
        if template is None or template.checked:
            return template
        try:
            unchanged = self._fingerprints.of(template.module).key == template.fingerprint
        except NoFingerprintError:
            unchanged = False
        if not unchanged:  # the run changed the module itself
            del self._templates[asked.key]
            return None
        template.checked = True
        return template

    def _replay(self, template: Template, asked: Asked) -> object:
        """Note a copy of an equal call and give what it would have given.

        No row is written and no op runs. Only tensors that leave the call get an object and a place in memory; all
        others exist as numbers that are left free for them.
        """
        original = template.original
        numbers = dict(zip(template.numbers, asked.numbers, strict=True))
        copy = Copy(
            original=original,
            at=self.rows.place(),
            external={number: numbers[number] for number in original.used.tensors},
            module=self._tree.number_of[id(asked.module)],
            parent=self._recorder.current_call,
            site=asked.site,
        )
        self.rows.add_copy(copy)
        self._tensors.lifetimes.rises(template.rise_bytes)
        self.reused_ops += original.extent.end.op - original.extent.start.op
        exchange = self._exchange(template, asked, copy)
        for state, changes in zip(asked.states, template.changes, strict=True):
            for change in changes:
                state.entries[change.entry].set(change.path, rebuilt(change.value, exchange))
        return rebuilt(template.result, exchange)

    def _exchange(self, template: Template, asked: Asked, copy: Copy) -> Callable[[object], object]:
        """The way from a part of the template's result to the same part of the new one; one to one."""
        objects = {id(old): new for old, new in zip(template.objects, asked.objects, strict=True)}
        tensors = dict(zip(template.numbers, asked.external(), strict=True))
        shift = copy.at.tensor - template.original.extent.start.tensor

        def exchange(part: object) -> object:
            if isinstance(part, Stub):
                number = part.number
            elif isinstance(part, Tensor):
                number = self._tensors.number_of(part)
            else:
                return objects[id(part)]
            new = tensors.get(number)
            if new is None:
                world = self._world
                new = tensors[number] = (
                    world.make_again(part.looks) if isinstance(part, Stub) else world.make_unseen(part)
                )
                storage = self.rows.storage_in_copy(copy, number)
                self._tensors.add_copied(new, number + shift, number, storage)
            return new

        return exchange


def _is_simple(value: object) -> bool:
    """Whether a result is a tensor, or its stub, or a tuple or list of those."""
    if type(value) in (tuple, list):
        return all(isinstance(one, Tensor | Stub) for one in value)  # type: ignore[attr-defined]
    return isinstance(value, Tensor | Stub)


def _is_quick(module: nn.Module, alike: int) -> bool:
    """Whether a module runs an op or two of torch: unless very many do, to run it is as quick as to compare it."""
    return is_of_torch(module) and (alike < _VERY_MANY or not (module._parameters or module._buffers))


def _sharing(numbers: list[int]) -> Hashable:
    """Which of the numbers are the same."""
    if len(set(numbers)) == len(numbers):
        return len(numbers)
    first: dict[int, int] = {}
    return tuple(first.setdefault(number, position) for position, number in enumerate(numbers))


def _modes() -> tuple[Hashable, ...]:
    """The settings of torch that decide which ops a call runs."""
    autocast = torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu")
    kernels = (_flash_allowed(), _efficient_allowed(), _math_allowed(), torch.backends.mha.get_fastpath_enabled())
    return (torch.is_grad_enabled(), torch.is_inference_mode_enabled(), autocast, torch.get_default_dtype(), kernels)
