"""Reuse: a module call identical to one already traced takes its rows instead of running again."""

import random
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import _disable_current_modes

from torchstone.capture.describe import is_plain
from torchstone.capture.fingerprint import (
    Change,
    EntryKeys,
    Fingerprint,
    Fingerprints,
    NoFingerprintError,
    NotComparableError,
    StateView,
    is_state,
    key_of,
)
from torchstone.capture.module_tree import IndexReads, ModuleTree
from torchstone.capture.ops import OpColumns, OpRecorder
from torchstone.capture.tables import CallColumns, TensorColumns
from torchstone.capture.tensor_modes import StandInWorld

# A copy of a nested result with other tensors in the same places.


Exchange = Callable[[Any], Any]


def rebuilt(value: Any, exchange: Exchange) -> Any:
    """The same structure, each tensor and each object handed to `exchange`."""
    if is_plain(value):
        return value
    if isinstance(value, Tensor):
        return exchange(value)
    if type(value) in (list, tuple, set):
        return type(value)([rebuilt(item, exchange) for item in value])
    if isinstance(value, tuple) and hasattr(value, "_make"):
        return value._make([rebuilt(item, exchange) for item in value])
    if type(value) is dict:
        return {name: rebuilt(item, exchange) for name, item in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        parts = {field.name: rebuilt(getattr(value, field.name, None), exchange) for field in fields(value)}
        return type(value)(**parts)
    return exchange(value)


# Rows of a growing trace: which belong to one module call, and how they are copied for an equal one.


_LITERAL = "aten.lift_fresh"  # how torch.tensor([...]) hands a constant over


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """The rows of one module call: from a start up to, not including, an end."""

    ops: range
    calls: range
    tensors: range
    storages: range


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """The three tables that grow together."""

    tensors: TensorColumns
    ops: OpColumns
    calls: CallColumns

    def here(self) -> Extent:
        """An empty extent at the end of the tables."""
        return self.since(None)

    def since(self, start: Extent | None) -> Extent:
        """All rows added since an earlier end."""
        ends = (len(self.ops), len(self.calls), len(self.tensors), self.tensors.num_storages)
        starts = ends
        if start is not None:
            starts = (start.ops.stop, start.calls.stop, start.tensors.stop, start.storages.stop)
        ops, calls, tensors, storages = map(range, starts, ends)
        return Extent(ops=ops, calls=calls, tensors=tensors, storages=storages)

    def self_contained(self, extent: Extent, external: set[int], real: set[int], modules: range) -> bool:
        """Whether the rows touch only their own tensors, the external ones named, and the modules named."""
        allowed = external | set(extent.tensors)
        ops, calls = self.ops, self.calls
        if not self._written_in_code(extent).issuperset(self.tensors.constants(extent.tensors)):
            return False
        for row in extent.ops:
            if not allowed.issuperset(ops.inputs[row]) or not allowed.issuperset(ops.outputs[row]):
                return False
            if not real.isdisjoint(ops.writes.get(row, ())):
                return False
        return all(
            calls.modules[row] in modules
            and allowed.issuperset(calls.inputs[row])
            and allowed.issuperset(calls.outputs[row])
            for row in extent.calls
        )

    def _written_in_code(self, extent: Extent) -> set[int]:
        """The constants that are made anew each time the code runs."""
        ops = self.ops
        lifted = {number for number, signature in enumerate(ops.signatures) if signature.op.startswith(_LITERAL)}
        return {tensor for row in extent.ops if ops.signature_of[row] in lifted for tensor in ops.inputs[row]}


class RowCopier:
    """Copies the rows of one extent to the end of the tables, with other tensors going in."""

    def __init__(self, rows: Rows, extent: Extent, external: Mapping[int, int]) -> None:
        self._rows = rows
        self._extent = extent
        self._external = external
        self._shift = len(rows.tensors) - extent.tensors.start
        copies = range(len(rows.tensors), extent.tensors.stop + self._shift)
        self._numbers = dict(external) | dict(zip(extent.tensors, copies, strict=True))

    def renumbered(self, number: int) -> int:
        """The tensor of the copy that has the place of this one."""
        return self._numbers[number]

    def copy(self, *, module_shift: int, parent: int) -> None:
        """Append the copy; its outermost call gets the given parent."""
        op_shift = len(self._rows.ops) - self._extent.ops.start
        call_shift = len(self._rows.calls) - self._extent.calls.start
        self._copy_tensors()
        self._copy_ops(op_shift, call_shift)
        self._copy_calls(op_shift, call_shift, module_shift, parent)

    def _copy_tensors(self) -> None:
        tensors, extent = self._rows.tensors, self._extent
        first, shift = extent.storages.start, tensors.num_storages - extent.storages.start
        storages = {tensors.storage_of[old]: tensors.storage_of[new] for old, new in self._external.items()}
        rows = slice(extent.tensors.start, extent.tensors.stop)
        copied = [storage + shift if storage >= first else storages[storage] for storage in tensors.storage_of[rows]]
        tensors.extend(tensors.spec_of[rows], copied, new_storages=len(extent.storages))
        tensors.copy_constants(extent.tensors, self._shift)

    def _copy_ops(self, op_shift: int, call_shift: int) -> None:
        ops, extent = self._rows.ops, self._extent
        rows = slice(extent.ops.start, extent.ops.stop)
        ops.signature_of.extend(ops.signature_of[rows])
        ops.module_calls.extend([call + call_shift for call in ops.module_calls[rows]])
        for row in extent.ops:
            if row in ops.writes:
                (ops.writes[row + op_shift],) = self._renumber([ops.writes[row]])
        ops.inputs.extend(self._renumber(ops.inputs[rows]))
        ops.outputs.extend(self._renumber(ops.outputs[rows]))

    def _copy_calls(self, op_shift: int, call_shift: int, module_shift: int, parent: int) -> None:
        calls, extent = self._rows.calls, self._extent
        rows = slice(extent.calls.start, extent.calls.stop)
        calls.signature_of.extend(calls.signature_of[rows])
        calls.modules.extend([module + module_shift for module in calls.modules[rows]])
        calls.parents.extend([parent, *[row + call_shift for row in calls.parents[rows][1:]]])
        calls.inputs.extend(self._renumber(calls.inputs[rows]))
        calls.outputs.extend(self._renumber(calls.outputs[rows]))
        calls.first_ops.extend([op + op_shift for op in calls.first_ops[rows]])
        calls.end_ops.extend([op + op_shift for op in calls.end_ops[rows]])

    def _renumber(self, rows: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
        new = self._numbers.__getitem__
        return [tuple(map(new, numbers)) for numbers in rows]


# Repetition is free: a module call equal to one already traced takes over its rows instead of running again. Equal
# means: same fingerprint (class, attributes, parameters, children), same inputs (shapes, strides, types, which of
# them share memory, values where they are known), same view of shared state, same modes. A call is a template for
# others only if nothing in it could go another way: no value read back, no use of its layer number, nothing touched
# that is neither its own nor an input. When in doubt, it runs.


_FEW_VALUES = 16
RunModule = Callable[[nn.Module, tuple[Any, ...], dict[str, Any]], Any]


@dataclass(slots=True, kw_only=True)
class Asked:
    """A module call that may be taken over or become a template."""

    key: Hashable
    module: nn.Module
    fingerprint: Fingerprint
    arguments: list[Tensor]  # the tensors among the arguments
    states: list[StateView]
    objects: list[Any]  # the state objects among the arguments
    numbers: list[int]  # of the external tensors

    def external(self) -> list[Tensor]:
        """Every tensor the call may touch that was there before it, in an order equal for equal calls."""
        return [*self.arguments, *self.fingerprint.held, *(t for state in self.states for t in state.own_tensors())]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """The result of a call that was taken over."""

    result: Any


@dataclass(slots=True, kw_only=True)
class Template:
    """A call that was run and may be taken over."""

    asked: Asked
    extent: Extent
    result: Any
    changes: list[list[Change]]  # for each state object
    checked: bool = False  # its module was found unchanged after the run


class Reuse:
    """Finds, learns and replays module calls."""

    def __init__(self, world: StandInWorld, tree: ModuleTree, recorder: OpRecorder, calls: CallColumns) -> None:
        self._world = world
        self._tree = tree
        self._recorder = recorder
        self._tensors = recorder.tensors
        self._rows = Rows(tensors=recorder.tensors, ops=recorder.ops, calls=calls)
        self._fingerprints = Fingerprints(tree, recorder.tensors, world)
        self._entry_keys = EntryKeys(self._key_of_tensor)
        self._index_reads = IndexReads(self._is_known_state)
        self._known_states: dict[int, Any] = {}
        self._kept_alive: dict[int, Tensor] = {}
        self._templates: dict[Hashable, Template] = {}
        self._sole = tree.sole_modules()
        self.reused_ops = 0
        self.copies: dict[int, int] = {}  # by row of the call: the row of the equal one that ran

    @contextmanager
    def watching(self) -> Iterator[None]:
        """While open, reads of layer numbers are seen."""
        with self._index_reads.watching(self._tree.modules):
            yield

    def take_over(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Replayed | Asked | None:
        """What an equal call gave, or what decides the trace of this one; None where that cannot be told."""
        if id(module) in self._sole:
            self._sole.remove(id(module))  # the first call; a later one may be equal to the one before it
            return None
        with _disable_current_modes():
            try:
                asked = self._ask(module, args, kwargs)
            except (NoFingerprintError, NotComparableError):
                return None
            template = self._find(asked)
            return asked if template is None else Replayed(result=self._replay(template, asked))

    def _ask(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Asked:
        fingerprint = self._fingerprints.of(module)
        arguments: list[Tensor] = []
        objects: list[Any] = []
        given = (self._argument_key(args, arguments, objects), self._argument_key(kwargs, arguments, objects))
        states = [self._view(value, module) for value in objects]
        seen = tuple((state.own_key, state.rest_key) for state in states)
        asked = Asked(
            key=None,
            module=module,
            fingerprint=fingerprint,
            arguments=arguments,
            states=states,
            objects=objects,
            numbers=[],
        )
        asked.numbers = [self._tensors.number_of(tensor) for tensor in asked.external()]
        storages = [self._tensors.storage_of[number] for number in asked.numbers]
        asked.key = (fingerprint.key, given, seen, _sharing(asked.numbers), _sharing(storages), _modes())
        return asked

    def _argument_key(self, value: Any, tensors: list[Tensor], objects: list[Any]) -> Hashable:
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

    def _view(self, value: Any, module: nn.Module) -> StateView:
        layer = self._tree.layer_of(module)
        if layer is None:
            raise NotComparableError
        view = StateView(value, layer, self._entry_keys)
        for part in view.objects:
            self._known_states[id(part)] = part
        return view

    def _is_known_state(self, value: Any) -> bool:
        return id(value) in self._known_states

    def _key_of_tensor(self, tensor: Tensor) -> Hashable:
        """Unknown values are told by their looks, a few values by themselves; more are equal only to themselves."""
        spec = self._tensors.spec_number(tensor)
        if self._world.is_unknown(tensor):
            return spec
        if tensor.numel() <= _FEW_VALUES:
            return (spec, tuple(tensor.flatten().tolist()))
        self._kept_alive[id(tensor)] = tensor
        return (spec, id(tensor), tensor._version)

    # --- learning ---

    def learn(self, asked: Asked, args: tuple[Any, ...], kwargs: dict[str, Any], run: RunModule) -> Any:
        """Run a call, and keep it as a template if it can be one."""
        start = self._rows.here()
        before = self._watermark(asked.module)
        result = run(asked.module, args, kwargs)
        if self._watermark(asked.module) == before:
            self._keep(asked, start, result)
        return result

    def _watermark(self, module: nn.Module) -> Hashable:
        dice = hash(random.getstate()) if module.training else 0
        return (self._recorder.value_reads, self._index_reads.count, dice)

    def _keep(self, asked: Asked, start: Extent, result: Any) -> None:
        external = asked.numbers
        try:
            with _disable_current_modes():
                after = [self._view(value, asked.module) for value in asked.objects]
                changes = [old.changes_to(new) for old, new in zip(asked.states, after, strict=True)]
                self._check_tensors(asked, result, changes)
        except NotComparableError:
            return
        extent = self._rows.since(start)
        real = {
            number
            for number, tensor in zip(external, asked.external(), strict=True)
            if not self._world.is_stand_in(tensor)
        }
        if self._rows.self_contained(extent, set(external), real, self._tree.span(asked.module)):
            self._templates[asked.key] = Template(asked=asked, extent=extent, result=result, changes=changes)

    def _check_tensors(self, asked: Asked, result: Any, changes: list[list[Change]]) -> None:
        """Inputs must still be what they were; what comes out must be stand-ins, inputs or objects passed in."""
        if asked.numbers != [self._tensors.number_of(tensor) for tensor in asked.external()]:
            raise NotComparableError
        allowed = {id(value) for value in (*asked.arguments, *asked.objects)}

        def look(part: Any) -> Any:
            if id(part) not in allowed and not (isinstance(part, Tensor) and self._world.is_unknown(part)):
                raise NotComparableError
            return part

        rebuilt(result, look)
        rebuilt([change.value for per_state in changes for change in per_state], look)

    # --- replaying ---

    def _find(self, asked: Asked) -> Template | None:
        """An equal call that was run, if there is one that still holds."""
        template = self._templates.get(asked.key)
        if template is None or template.checked:
            return template
        try:
            unchanged = self._fingerprints.of(template.asked.module).key == template.asked.fingerprint.key
        except NoFingerprintError:
            unchanged = False
        if not unchanged:  # the run changed the module itself
            del self._templates[asked.key]
            return None
        template.checked = True
        return template

    def _replay(self, template: Template, asked: Asked) -> Any:
        """Take over the rows of an equal call and give what it would have given."""
        copier = RowCopier(self._rows, template.extent, dict(zip(template.asked.numbers, asked.numbers, strict=True)))
        module_shift = self._tree.number_of[id(asked.module)] - self._tree.number_of[id(template.asked.module)]
        self.copies[len(self._rows.calls)] = template.extent.calls.start
        copier.copy(module_shift=module_shift, parent=self._recorder.current_call)
        self.reused_ops += len(template.extent.ops)
        exchange = self._exchange(template, asked, copier)
        for state, changes in zip(asked.states, template.changes, strict=True):
            for change in changes:
                state.entries[change.entry].set(change.path, rebuilt(change.value, exchange))
        return rebuilt(template.result, exchange)

    def _exchange(self, template: Template, asked: Asked, copier: RowCopier) -> Callable[[Any], Any]:
        """The way from a part of the template's result to the same part of the new one; one to one."""
        old = (*template.asked.arguments, *template.asked.objects)
        known = {id(a): b for a, b in zip(old, (*asked.arguments, *asked.objects), strict=True)}
        by_number = dict(zip(template.asked.numbers, asked.external(), strict=True))

        def exchange(part: Any) -> Any:
            new = known.get(id(part))
            if new is None:
                number = self._tensors.number_of(part)
                new = by_number.get(number)
                if new is None:
                    new = self._world.make(part)
                    self._tensors.mark(new, copier.renumbered(number))
                known[id(part)] = new
            return new

        return exchange


def _sharing(numbers: list[int]) -> Hashable:
    """Which of the numbers are the same."""
    if len(set(numbers)) == len(numbers):
        return len(numbers)
    first: dict[int, int] = {}
    return tuple(first.setdefault(number, position) for position, number in enumerate(numbers))


def _modes() -> Hashable:
    autocast = torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu")
    return (torch.is_grad_enabled(), torch.is_inference_mode_enabled(), autocast, torch.get_default_dtype())
