"""The tables of a trace while they grow: tensors and module calls, each distinct description kept once."""

import inspect
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from itertools import chain
from threading import Lock
from typing import Any, TypeVar
from weakref import ref

import msgspec
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor

from torchstone.capture.describe import Describer, spec_of, stored_bytes, tensors_inside
from torchstone.capture.lifetimes import Lifetimes
from torchstone.record.module import ModuleCallTable, ModuleSignature
from torchstone.record.op import OpSignature
from torchstone.record.tensor import ExternalTensor, TensorSpec, TensorTable
from torchstone.record.value import Absent, Argument, Value

# The trace while it grows: columns of tensors, op calls and module calls, each distinct description kept once.


_MARK = "_torchstone_number"  # the table, the number of the tensor, and what may be known of its description
_UNMARKED = (None, -1, None, False)
_PLAIN = frozenset({Tensor, nn.Parameter, FakeTensor})
_MOST_KEPT = 50_000  # descriptions and calls; some tens of MB
T = TypeVar("T")
_encode = msgspec.msgpack.Encoder().encode


class DescribedCalls:
    """The arguments of module calls that look the same, with the signatures by the looks of what came out."""

    __slots__ = ("arguments", "signatures")

    def __init__(self, arguments: tuple[Argument, ...]) -> None:
        self.arguments = arguments
        self.signatures: dict[object, ModuleSignature] = {}


class Descriptions:
    """Descriptions of tensors and op calls, each distinct one made once for all captures of the process.

    A description follows from what is described, so it does not matter which capture met it first.
    """

    def __init__(self, *, stand_in: bool) -> None:
        self.specs: list[TensorSpec] = []
        self.calls: dict[object, int] = {}  # by op and arguments: the number of a call
        self.signatures: dict[object, OpSignature] = {}  # by the number of a call and the looks of its result
        self.results: dict[int, Any] = {}  # by the number of a call: how its result is made again
        self.made: dict[int, tuple[object, tuple[int, ...]]] = {}  # by the same: looks and descriptions of new results
        self.module_arguments: dict[object, DescribedCalls] = {}  # by the code of a module and their looks
        self._module_signatures: dict[bytes, ModuleSignature] = {}  # as written: to Python, 1 and True are equal
        self._arguments: dict[tuple[str, object], Argument] = {}  # by name and what tells values apart
        self._stand_in = stand_in
        self._numbers: dict[tuple[object, ...], int] = {}
        self._fakes: dict[tuple[int, bool], int] = {}  # by description and whether it requires a gradient
        self._lock = Lock()

    def __len__(self) -> int:
        kept = (self.specs, self.calls, self.signatures, self._arguments, self._module_signatures)
        return max(map(len, kept))

    def spec_number(self, tensor: Tensor) -> int:
        """The number of a tensor's description."""
        kind = type(tensor)
        layout = tensor.layout
        strided = layout is torch.strided
        key = (
            tensor.shape,
            tensor.dtype,
            tensor.stride() if strided else layout,
            tensor.storage_offset() if strided else 0,
            tensor.device,
            tensor.requires_grad,
            kind,
            None if kind in _PLAIN else stored_bytes(tensor),
        )
        number = self._numbers.get(key)
        return self._add(key, tensor) if number is None else number

    def fake_spec(self, fake: FakeTensor, spec: int) -> int:
        """The number of the description of a fake tensor that stands for a plain one with another description."""
        key = (spec, fake.requires_grad)
        number = self._fakes.get(key)
        if number is None:
            number = self._fakes[key] = self.spec_number(fake)
        return number

    def one_of(self, signature: ModuleSignature) -> ModuleSignature:
        """The one signature that stands for all that are equal to it."""
        return self._module_signatures.setdefault(_encode(signature), signature)

    def argument(self, name: str, key: object, value: object) -> Argument:
        """A value under a name, described once for all values that have the same key."""
        known = self._arguments.get((name, key))
        if known is None:
            if type(key) is tuple and key[0] is Tensor:
                described: Value = self.specs[key[1]]
            else:
                described = Describer(stand_in=self._stand_in, spec=self._spec).describe(value)
            known = self._arguments[name, key] = Argument(name=name, value=described)
        return known

    def _spec(self, tensor: Tensor) -> TensorSpec:
        return self.specs[self.spec_number(tensor)]

    def call_number(self, key: object) -> int:
        """The number of an op call with arguments that look like these."""
        number = self.calls.get(key)
        if number is None:
            with self._lock:
                number = self.calls.setdefault(key, len(self.calls))
        return number

    def _add(self, key: tuple[object, ...], tensor: Tensor) -> int:
        spec = spec_of(tensor, stand_in=self._stand_in)
        with self._lock:  # captures on two threads share this
            number = self._numbers.setdefault(key, len(self.specs))
            if number == len(self.specs):
                self.specs.append(spec)
        return number


_known: dict[bool, Descriptions] = {}


def known_descriptions(*, stand_in: bool) -> Descriptions:
    """The descriptions that a capture begins with; where there are too many, none."""
    known = _known.get(stand_in)
    if known is None or len(known) > _MOST_KEPT:
        known = _known[stand_in] = Descriptions(stand_in=stand_in)
    return known


def _no_columns() -> None:
    return None


class TensorColumns:
    """Gives every tensor of the run a number, and every piece of memory one of its own."""

    def __init__(self, *, stand_in: bool) -> None:
        self.stand_in = stand_in  # meta tensors stand in for tensors on the cpu
        self.known = known_descriptions(stand_in=stand_in)
        self.spec_of: dict[int, int] = {}  # by number; of copied tensors, only those that an object stands for
        self.storage_of: dict[int, int] = {}
        self.num_storages = 0
        self._count = 0
        self.exchanged: dict[int, int] = {}  # by id: descriptions of held tensors in whose place stand-ins run
        self.held: dict[int, int] = {}  # by id: their numbers
        self._numbers_held: dict[int, int] = {}  # by id: those of all tensors that modules held before the run
        self._lasting: list[Tensor] = []  # these tensors, whose ids must not be given again
        self.gradients: dict[int, int] = {}  # parameter -> what the backward pass left for it
        self.left: dict[str, int] = {}  # what modules hold at the end and did not hold before, by name
        self._external: list[ExternalTensor] = []
        self._constants: list[int] = []  # those of the external ones that the code brought along
        self._brought: set[int] = set()  # storages of external ones that are no inputs
        self._gone: set[int] = set()  # those of the external ones that the model replaced
        self.unrecorded = 0  # tensors made by ops that were not recorded
        self._views: list[int] = []  # those of known memory that no op made
        self._marked: list[ref[Tensor]] = []  # tensors that may outlive the capture and must lose their mark
        self.lifetimes = Lifetimes()

    def __len__(self) -> int:
        return self._count

    def __reduce__(self) -> tuple[object, ...]:
        """A copy of a tensor that models make, or save, copies its mark: it is another tensor, which has no number."""
        return _no_columns, ()

    def spec_number(self, tensor: Tensor) -> int:
        """The number of a tensor's description, kept with the number of a fake tensor: most are looked at many times.

        What a fake tensor looks like changes in three ways: an op writes to it (`forget_looks`), `tensor.data` is
        assigned (`LOOKS_WATCHED`), or it begins or ceases to require a gradient, which is looked at here.
        """
        if type(tensor) is not FakeTensor:
            return self.known.spec_number(tensor)
        columns, number, spec, requires_grad = tensor.__dict__.get(_MARK, _UNMARKED)
        if columns is self and spec is not None and requires_grad is tensor.requires_grad:
            return int(spec)
        spec = self.known.spec_number(tensor)
        if columns is self:
            tensor.__dict__[_MARK] = (self, number, spec, tensor.requires_grad)
        return spec

    def forget_looks(self, tensors: Iterable[Tensor]) -> None:
        """These tensors may not look as they did."""
        for tensor in tensors:
            columns, number, spec, _ = getattr(tensor, _MARK, _UNMARKED)
            if spec is not None:
                setattr(tensor, _MARK, (columns, number, None, False))

    def number_of(self, tensor: Tensor) -> int:
        """The number of a tensor; one never seen before is a constant that the code brought along."""
        held = self.held.get(id(tensor))
        if held is not None:
            return held
        mark = getattr(tensor, _MARK, None)
        if mark is not None and mark[0] is self:
            return int(mark[1])
        inside = () if type(tensor) in _PLAIN else tensors_inside(tensor)
        if inside and all(self.is_known(part) for _, part in inside):  # made by ops on its parts: no memory of its own
            return self.add(tensor, self.storage_of[self.number_of(inside[0][1])])
        shared = self.lifetimes.storage_at(storage_pointer(tensor))
        if shared is not None:  # torch makes some views without an op: `tensor.data`, and those that code made before
            self._views.append(number := self.add(tensor, shared))
            self._marked.append(ref(tensor))
            return number
        self.unrecorded += type(tensor) is FakeTensor  # code brings real ones along
        return self.add_external(tensor, kind="constant", name="")

    def numbers_of(self, tensors: list[Tensor]) -> list[int] | None:
        """The numbers of tensors, or None where one has none yet."""
        numbers = []
        for tensor in tensors:
            columns, number, _, _ = getattr(tensor, _MARK, _UNMARKED)
            found = number if columns is self else self.held.get(id(tensor))
            if found is None:
                return None
            numbers.append(found)
        return numbers

    def is_known(self, tensor: Tensor) -> bool:
        """Whether the tensor has a number already."""
        mark = getattr(tensor, _MARK, None)
        return (mark is not None and mark[0] is self) or id(tensor) in self.held

    def add_external(self, tensor: Tensor, *, kind: str, name: str) -> int:
        """Give a number to a tensor that no recorded op made."""
        plain = type(tensor) in _PLAIN
        storage = self.lifetimes.storage_at(storage_pointer(tensor))
        if storage is None:
            storage = self.new_storage()
            self.lifetimes.born(tensor, storage, None if plain else stored_bytes(tensor))
        number = self.add(tensor, storage)
        self._external.append(ExternalTensor(tensor=number, kind=kind, name=name))
        if kind != "input":
            self._brought.add(storage)
        if kind == "constant":
            self._constants.append(number)
        self._marked.append(ref(tensor))
        for part_name, part in () if plain else tensors_inside(tensor):
            self._add_inside(part, storage, f"{name}.{part_name}")
        return number

    def number_held(
        self, held: Iterable[tuple[str, str, Tensor]], exchanges: Callable[[Tensor], bool]
    ) -> dict[int, int]:
        """Give a number to each tensor that modules hold, by kind, name and tensor; gives the numbers by id.

        Where something else runs in the place of a plain one, nothing changes the tensor itself, and it lives as long
        as the model does: its memory need not be watched, and it needs no mark.
        """
        numbers = self._numbers_held
        for kind, name, tensor in held:
            place = id(tensor)
            if place in numbers:
                continue
            plain = kind != "constant" and type(tensor) in _PLAIN and tensor.layout is torch.strided
            if plain and exchanges(tensor):
                self.held[place] = numbers[place] = self._add_lasting(tensor, kind, name)
            elif self.is_known(tensor):
                numbers[place] = self.number_of(tensor)
            else:
                numbers[place] = self.add_external(tensor, kind=kind, name=name)
        return numbers

    def was_held(self, tensor: Tensor) -> bool:
        """Whether a module held the tensor before the run."""
        return id(tensor) in self._numbers_held

    def was_there(self, tensor: Tensor) -> bool:
        """Whether the memory of a tensor is not that of an input or of a result."""
        columns, number, _, _ = getattr(tensor, _MARK, _UNMARKED)
        return columns is not self or self.storage_of[number] in self._brought

    def _add_lasting(self, tensor: Tensor, kind: str, name: str) -> int:
        memory = tensor.untyped_storage()
        storage = self.lifetimes.lasts(memory, self.num_storages)
        self.num_storages += storage == self.num_storages
        self._brought.add(storage)
        number = self._count
        self._count += 1
        self.spec_of[number] = self.exchanged[id(tensor)] = self.known.spec_number(tensor)
        self.storage_of[number] = storage
        self._external.append(ExternalTensor(tensor=number, kind=kind, name=name))
        self._lasting.append(tensor)
        return number

    def let_go(self, number: int) -> None:
        """What a module held lasts only as long as the code that still uses it."""
        self._gone.add(number)

    def let_stand_in_go(self, number: int, stand_in: Tensor | None) -> None:
        """The memory of a tensor goes with the stand-in that the code had in its place, if it had one."""
        if stand_in is not None:
            self.lifetimes.lives_with(self.storage_of[number], stand_in)

    def _add_inside(self, part: Tensor, storage: int, name: str) -> None:
        """Give a number to a tensor that another one is made of: the memory is that of the whole."""
        number = self.add(part, storage)
        self._external.append(ExternalTensor(tensor=number, kind="constant", name=name))
        self._marked.append(ref(part))
        for part_name, inner in tensors_inside(part):
            self._add_inside(inner, storage, f"{name}.{part_name}")

    def mark_like(self, tensor: Tensor, known: Tensor) -> None:
        """Let a tensor stand for another one, and what it is made of for what that is made of."""
        spec = self.exchanged.get(id(known))
        if spec is not None and type(tensor) is FakeTensor:  # what it looks like follows from what the other looks like
            self.mark(tensor, self.held[id(known)], self.known.fake_spec(tensor, spec))
            return
        self.mark(tensor, self.number_of(known))
        if type(tensor) in _PLAIN:
            return
        for (_, part), (_, known_part) in zip(tensors_inside(tensor), tensors_inside(known), strict=False):
            self.mark_like(part, known_part)

    def add(self, tensor: Tensor, storage: int, spec: int | None = None) -> int:
        """Give a new number to a tensor, whatever it had before; the number of its description may be known."""
        number = self._count
        self._count += 1
        if spec is None:
            spec = self.known.spec_number(tensor)
        self.spec_of[number] = spec
        self.storage_of[number] = storage
        self.mark(tensor, number, spec)
        return number

    def add_new(self, tensor: Tensor, spec: int) -> int:
        """Give a number to a tensor that has new memory."""
        storage = self.new_storage()
        self.lifetimes.born(tensor, storage)
        return self.add(tensor, storage, spec)

    def has_shape(self, number: int, tensor: Tensor) -> bool:
        """Whether a tensor has the shape with which its number was given."""
        return tensor.shape == self.known.specs[self.spec_of[number]].shape

    def new_storage(self) -> int:
        """A number for memory not seen before."""
        self.num_storages += 1
        return self.num_storages - 1

    def mark(self, tensor: Tensor, number: int, spec: int | None = None) -> None:
        """Let a tensor object stand for a number from now on; the number of its description may be known."""
        setattr(tensor, _MARK, (self, number, spec, tensor.requires_grad if spec is not None else False))

    def leave_numbers(self, tensors: int, storages: int) -> None:
        """Leave numbers to the tensors and storages of a copy."""
        self._count += tensors
        self.num_storages += storages

    def add_copied(self, tensor: Tensor, number: int, like: int, storage: int) -> None:
        """Let an object stand for a tensor of a copy, which is like another one."""
        self.spec_of[number] = self.spec_of[like]
        self.storage_of[number] = storage
        self.lifetimes.born(tensor, storage, self.lifetimes.size_of(self.storage_of[like]))
        self.mark(tensor, number)

    def constants(self, numbers: range) -> list[int]:
        """The tensors among these that code brought along."""
        return _among(self._constants, numbers)

    def views(self, numbers: range) -> list[int]:
        """The tensors among these that are views of known memory which no op made."""
        return _among(self._views, numbers)

    def describer(self, layer: int | None = None) -> Describer:
        """A describer that writes devices as this run does."""
        return Describer(stand_in=self.stand_in, layer=layer, spec=self.spec)

    def spec(self, tensor: Tensor) -> TensorSpec:
        """The description of a tensor; equal ones are one object."""
        return self.known.specs[self.spec_number(tensor)]

    def forget_marks(self) -> None:
        """Leave the tensors that outlive the capture as they were found."""
        for marked in self._marked:
            tensor = marked()
            with suppress(AttributeError):
                delattr(tensor, _MARK)
        self._marked.clear()

    def freeze(self, copied: Sequence[range] = ()) -> TensorTable:
        """The columns without those copied as a record, specs in the order of their first tensor."""
        recorded = without(sorted(self.spec_of), copied)
        specs = [self.spec_of[number] for number in recorded]
        order = {spec: position for position, spec in enumerate(dict.fromkeys(specs))}
        kept = set(without([one.tensor for one in self._external], copied))
        released = self.lifetimes.released
        gone = self._gone.union(number for number in self._constants if self.storage_of[number] in released)
        return TensorTable(
            specs=tuple(self.known.specs[spec] for spec in order),
            spec_of=tuple([order[spec] for spec in specs]),
            storage_of=tuple([self.storage_of[number] for number in recorded]),
            external=tuple(
                [
                    one if one.tensor not in gone else msgspec.structs.replace(one, lasts=False)
                    for one in self._external
                    if one.tensor in kept
                ]
            ),
            gradients=dict(self.gradients),
            left=dict(self.left),
        )


def renew(tensor: Tensor) -> None:
    """From now on, a tensor is another one: it was given other data."""
    columns = getattr(tensor, _MARK, _UNMARKED)[0]
    if columns is not None:
        delattr(tensor, _MARK)
        columns.number_of(tensor)


def _among(sorted_numbers: list[int], numbers: range) -> list[int]:
    return sorted_numbers[bisect_left(sorted_numbers, numbers.start) : bisect_left(sorted_numbers, numbers.stop)]


def spans_without(numbers: Sequence[int], left_out: Sequence[range]) -> list[slice]:
    """Where those of some ascending numbers stand that lie in none of some ranges, which do not overlap, in order."""
    ends = [bisect_left(numbers, end) for one in left_out for end in (one.start, one.stop)]
    bounds = [0, *ends, len(numbers)]
    return [slice(bounds[place], bounds[place + 1]) for place in range(0, len(bounds), 2)]


def without(numbers: Sequence[int], left_out: Sequence[range]) -> list[int]:
    """Those of some ascending numbers that lie in none of some ranges."""
    return pick(numbers, spans_without(numbers, left_out))


def pick(values: Sequence[T], spans: Sequence[slice]) -> list[T]:
    """The values in some spans."""
    return list(chain.from_iterable([values[span] for span in spans]))


def storage_pointer(tensor: Tensor) -> int | None:
    """What tells two tensors' memory apart while both live; None for a tensor without plain memory."""
    try:
        return int(tensor.untyped_storage()._cdata)
    except (NotImplementedError, RuntimeError):  # sparse and other opaque layouts
        return None


# Module calls as they happen: who calls whom, with what, and which op calls lie inside.


_ABSENT = Absent()


class CallColumns:
    """The table of module calls while it grows."""

    def __init__(self) -> None:
        self.signatures: list[ModuleSignature] = []
        self.numbers: list[int] = []  # of the calls that ran; those of copies are left to them
        self.signature_of: dict[int, int] = {}  # by number, as all columns
        self.modules: dict[int, int] = {}
        self.parents: dict[int, int] = {}
        self.inputs: dict[int, tuple[int, ...]] = {}
        self.outputs: dict[int, tuple[int, ...]] = {}
        self.first_ops: dict[int, int] = {}
        self.end_ops: dict[int, int] = {}
        self.sites: list[int] = []  # the lines that made the calls
        self.copied = 0
        self._signature_numbers: dict[int, int] = {}  # by id: each signature stands for all that are equal to it

    def __len__(self) -> int:
        return len(self.numbers) + self.copied

    def begin(self, module: int, parent: int, first_op: int, site: int) -> int:
        """Open a row; what was passed and what came back is filled in when the call ends."""
        number = len(self)
        self.numbers.append(number)
        self.sites.append(site)
        self.signature_of[number] = -1
        self.modules[number] = module
        self.parents[number] = parent
        self.inputs[number] = ()
        self.outputs[number] = ()
        self.first_ops[number] = first_op
        self.end_ops[number] = first_op
        return number

    def number_signature(self, signature: ModuleSignature) -> int:
        """The number of a signature, of which there is one object."""
        number = self._signature_numbers.get(id(signature))
        if number is None:
            number = self._signature_numbers[id(signature)] = len(self.signatures)
            self.signatures.append(signature)
        return number

    def freeze(self) -> ModuleCallTable:
        """The columns as a record."""
        return ModuleCallTable(
            signatures=tuple(self.signatures),
            signature_of=tuple(self.signature_of.values()),
            modules=tuple(self.modules.values()),
            parents=tuple(self.parents.values()),
            inputs=tuple(self.inputs.values()),
            outputs=tuple(self.outputs.values()),
            first_ops=tuple(self.first_ops.values()),
            end_ops=tuple(self.end_ops.values()),
        )


def describe_arguments(
    module: nn.Module, args: tuple[object, ...], kwargs: Mapping[str, object], describer: Describer
) -> tuple[Argument, ...]:
    """The arguments of a module call under their names; the describer has the tensors in them."""
    positional = (
        Argument(name=name, value=describer.describe(value), position=position)
        for position, (name, value) in enumerate(zip(argument_names(module, len(args)), args, strict=True))
    )
    return (*positional, *(Argument(name=name, value=describer.describe(value)) for name, value in kwargs.items()))


def argument_names(module: nn.Module, count: int) -> list[str]:
    """Names for the first positional arguments of a module; a number where its forward gives none."""
    names = _parameter_names(type(module).forward)
    return [names[position] if position < len(names) else str(position) for position in range(count)]


@cache
def _parameter_names(forward: Callable[..., object]) -> tuple[str, ...]:
    try:
        parameters = inspect.signature(forward).parameters.values()
    except (TypeError, ValueError):  # written in C, or with a signature of its own making
        return ()
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return tuple(parameter.name for parameter in parameters if parameter.kind in positional)[1:]
