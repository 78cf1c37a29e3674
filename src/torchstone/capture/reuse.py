"""Repetition is free: a module call equal to one already traced takes over its rows instead of running again.

Equal means: same fingerprint (class, attributes, parameters, children), same inputs (shapes, strides, types, which of
them share memory, values where they are known), same view of shared state, same modes. A call is a template for others
only if nothing in it could go another way: no value read back, no use of its layer number, nothing touched that is
neither its own nor an input. When in doubt, it runs.
"""

import random
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import _disable_current_modes

from torchstone.capture.calls import CallColumns
from torchstone.capture.describe import is_plain
from torchstone.capture.fingerprint import Fingerprint, Fingerprints, NoFingerprintError
from torchstone.capture.index_reads import IndexReads
from torchstone.capture.module_tree import ModuleTree
from torchstone.capture.ops import OpRecorder
from torchstone.capture.rebuild import rebuilt
from torchstone.capture.rows import Extent, RowCopier, Rows
from torchstone.capture.state import Change, EntryKeys, NotComparableError, StateView, is_state, key_of
from torchstone.capture.worlds import StandInWorld

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
        """Stand-ins are told by their looks, a few values by themselves; more values are equal only to themselves."""
        spec = self._tensors.spec_number(tensor)
        if self._world.is_stand_in(tensor) or tensor.is_meta:
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
            if id(part) not in allowed and not (isinstance(part, Tensor) and self._world.is_stand_in(part)):
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
                state.entries[change.entry].set(change.name, rebuilt(change.value, exchange))
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
