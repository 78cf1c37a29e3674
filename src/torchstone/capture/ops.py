"""The op recorder: a dispatch mode that sees every op that reaches a kernel and writes it down with its schema."""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

import torch
from torch import Tensor
from torch._ops import HigherOrderOperator, OpOverload

from torchstone.backends.interception import KernelOpMode, OpArguments, OpKeywords, op_name
from torchstone.capture.call_sites import CallSites
from torchstone.capture.tables import TensorColumns, storage_pointer, without
from torchstone.record.op import OpSignature, OpTable
from torchstone.record.value import Argument, show_value

# What an op's own schema says: argument names and defaults, what it writes, whether it reads values back.


MASKS = (torch.bool, torch.uint8)
_INDEX = torch.ops.aten.index.Tensor
_READS_VALUES = (torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpSchema:
    """The facts about one op overload that recording needs."""

    name: str
    argument_names: tuple[str, ...]
    defaults: dict[str, object]
    written: tuple[str, ...]  # arguments changed in place
    renews_its_input: bool  # changes the shape or strides of its input in place, as squeeze_ does
    returns: int  # values that it gives
    reads_values: bool  # its result, or the result's shape, is read from the values of a tensor


@cache
def schema_of(op: OpOverload | HigherOrderOperator) -> OpSchema:
    """Look an op up; a higher-order op has no schema and only a name."""
    if isinstance(op, HigherOrderOperator):
        return OpSchema(name=op_name(op), argument_names=(), defaults={}, written=(),
                        renews_its_input=False, returns=1, reads_values=True)  # fmt: skip
    arguments = op._schema.arguments
    return OpSchema(
        name=op_name(op),
        argument_names=tuple(argument.name for argument in arguments),
        defaults={argument.name: argument.default_value for argument in arguments if argument.has_default_value()},
        written=tuple(argument.name for argument in arguments if argument.alias_info and argument.alias_info.is_write),
        renews_its_input=torch.Tag.inplace_view in op.tags,
        returns=len(op._schema.returns),
        reads_values=any(tag in op.tags for tag in _READS_VALUES),
    )


def reads_values(op: OpOverload, schema: OpSchema, args: tuple[Any, ...]) -> bool:
    """Whether this call's result, or its shape, is read from values; picking by places, not by a mask, is not."""
    if op is _INDEX:
        return any(index is not None and index.dtype in MASKS for index in args[1])
    return schema.reads_values


def tensors_in(values: tuple[object, ...] | list[object]) -> Iterator[Tensor]:
    """The tensors among arguments, in order."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from tensors_in(value)


def map_tensors(change: Callable[[Tensor], Tensor], value: object) -> Any:
    """Arguments or a result with each tensor changed."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, list | tuple):
        return type(value)([map_tensors(change, item) for item in value])
    if isinstance(value, dict):
        return {name: map_tensors(change, item) for name, item in value.items()}
    return value


# Op calls as they happen: a dispatch mode sees every op that reaches a kernel and writes it down.


_PLAIN = (int, float, bool, str, type(None), complex)


class Executes(Protocol):
    """The world an op runs in: real, fake or meta."""

    reads_are_repeatable: bool  # equal calls on equal inputs read back equal values

    def execute(self, op: OpOverload, args: tuple[object, ...], kwargs: Mapping[str, object]) -> object:
        """Run an op and give its result."""

    def met_unnumbered(self, tensor: Tensor) -> None:
        """An op is given a tensor that no recorded op made."""

    def ran_as(self, tensor: Tensor) -> Tensor:
        """What an op that was given this tensor was run on."""


class OpColumns:
    """The table of op calls while it grows."""

    def __init__(self) -> None:
        self.signatures: list[OpSignature] = []
        self.rows: list[int] = []  # the number of each call that ran; those of copies are left to them
        self.signature_of: list[int] = []
        self.inputs: list[tuple[int, ...]] = []
        self.outputs: list[tuple[int, ...]] = []
        self.module_calls: list[int] = []
        self.sites: list[int] = []  # the lines they come from
        self.writes: dict[int, tuple[int, ...]] = {}
        self.forward_calls: int | None = None
        self.numbers: dict[object, int] = {}
        self.copied = 0

    def __len__(self) -> int:
        return len(self.signature_of) + self.copied

    def freeze_sites(self, copied: Sequence[range] = ()) -> tuple[int, ...]:
        """The call sites of the rows that `freeze` keeps."""
        return tuple([self.sites[bisect_left(self.rows, number)] for number in without(self.rows, copied)])

    def freeze(self, copied: Sequence[range] = ()) -> OpTable:
        """The columns without calls that turned out to be copies, as a record."""
        places = [bisect_left(self.rows, number) for number in without(self.rows, copied)]
        return OpTable(
            signatures=tuple(self.signatures),
            signature_of=tuple([self.signature_of[place] for place in places]),
            inputs=tuple([self.inputs[place] for place in places]),
            outputs=tuple([self.outputs[place] for place in places]),
            module_calls=tuple([self.module_calls[place] for place in places]),
            writes={number: self.writes[number] for number in without(list(self.writes), copied)},
            forward_calls=len(self) if self.forward_calls is None else self.forward_calls,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedOp:
    """The op that raised."""

    error: BaseException
    op: str
    arguments: str
    module_call: int


class OpRecorder(KernelOpMode):
    """Sees every op call and writes it down: what went in before it runs, what came out after."""

    def __init__(self, world: Executes, tensors: TensorColumns, ops: OpColumns, sites: CallSites) -> None:
        super().__init__()
        self._world = world
        self.tensors = tensors
        self.ops = ops
        self.sites = sites
        self.current_call = -1  # row of the innermost module call running
        self.value_reads = 0  # calls so far whose result was read from the values of a tensor
        self.owner_of_backward: Callable[[], int] | None = None  # the module call behind the autograd node running
        self.failed: FailedOp | None = None

    def run_op(self, func: Any, args: OpArguments, kwargs: OpKeywords) -> object:
        """Run an op in the world of this capture, and record it."""
        schema = schema_of(func)
        given: list[Tensor] = []
        key = (func, _key_of(args, given, self.tensors), _key_of(kwargs, given, self.tensors))
        inputs = self._number_inputs(given)
        try:
            result = self._world.execute(func, args, kwargs)
        except BaseException as error:
            self.failed = FailedOp(error=error, op=schema.name, arguments=self._show(schema, args, kwargs),
                                   module_call=self.current_call)  # fmt: skip
            raise
        if schema.reads_values and not self._world.reads_are_repeatable and reads_values(func, schema, args):
            self.value_reads += 1
        made: list[Tensor] = []
        whole_key = (key, _key_of(result, made, self.tensors))
        outputs = self._number_outputs(schema, given, inputs, made)
        self._append(whole_key, schema, (args, kwargs, result), inputs, outputs)
        return result

    def _number_inputs(self, given: list[Tensor]) -> tuple[int, ...]:
        for tensor in given:
            if not self.tensors.is_known(tensor):
                self._world.met_unnumbered(tensor)
        number_of = self.tensors.number_of
        return tuple([number_of(tensor) for tensor in given])

    def _append(
        self,
        key: object,
        schema: OpSchema,
        values: tuple[Any, Any, object],
        inputs: tuple[int, ...],
        outputs: tuple[int, ...],
    ) -> None:
        ops = self.ops
        signature = ops.numbers.get(key)
        if signature is None:
            signature = ops.numbers[key] = len(ops.signatures)
            ops.signatures.append(self._signature(schema, *values))
        number = len(ops)
        if schema.written:
            ops.writes[number] = self._written(schema, values[0], values[1])
        ops.rows.append(number)
        ops.signature_of.append(signature)
        ops.inputs.append(inputs)
        ops.outputs.append(outputs)
        ops.module_calls.append(self.current_call if self.owner_of_backward is None else self.owner_of_backward())
        ops.sites.append(self.sites.here())

    def _number_outputs(
        self, schema: OpSchema, given: list[Tensor], inputs: tuple[int, ...], made: list[Tensor]
    ) -> tuple[int, ...]:
        if not made:
            return ()
        tensors = self.tensors
        storages = {
            storage_pointer(one): tensors.storage_of[number]
            for tensor, number in zip(given, inputs, strict=True)
            for one in (tensor, self._world.ran_as(tensor))
        }
        storages.pop(None, None)
        numbers = []
        for tensor in made:
            if tensors.is_known(tensor) and not schema.renews_its_input:
                numbers.append(tensors.number_of(tensor))
                continue
            pointer = storage_pointer(tensor)
            storage = storages.get(pointer)
            if storage is None:
                storage = storages[pointer] = tensors.new_storage()
                tensors.lifetimes.born(tensor, storage)
            numbers.append(tensors.add(tensor, storage))
        return tuple(numbers)

    def _written(self, schema: OpSchema, args: tuple[object, ...], kwargs: Mapping[str, object]) -> tuple[int, ...]:
        written: list[Tensor] = []
        for name, value in (*zip(schema.argument_names, args, strict=False), *kwargs.items()):
            if name in schema.written:
                _key_of(value, written, self.tensors)
        return tuple(self.tensors.number_of(tensor) for tensor in written)

    def _signature(
        self, schema: OpSchema, args: tuple[object, ...], kwargs: Mapping[str, object], result: object
    ) -> OpSignature:
        describer = self.tensors.describer()
        return OpSignature(
            op=schema.name,
            arguments=tuple(
                Argument(name=name, value=describer.describe(value)) for name, value in _bind(schema, args, kwargs)
            ),
            output=describer.describe(result),
        )

    def _show(self, schema: OpSchema, args: tuple[object, ...], kwargs: Mapping[str, object]) -> str:
        describer = self.tensors.describer()
        given = (*zip(schema.argument_names or map(str, range(len(args))), args, strict=False), *kwargs.items())
        return ", ".join(f"{name}={show_value(describer.describe(value))}" for name, value in given)


def _bind(schema: OpSchema, args: tuple[object, ...], kwargs: Mapping[str, object]) -> list[tuple[str, object]]:
    """All arguments under their schema names, in schema order, defaults filled in.

    The order of the tensors among them is that of args, then kwargs, as the call's inputs are numbered:
    keyword-only arguments come last in a schema, and torch hands positional ones over by position.
    """
    if not schema.argument_names:
        return [*((str(position), value) for position, value in enumerate(args)), *kwargs.items()]
    given = dict(zip(schema.argument_names, args, strict=False))
    keywords = [name for name in kwargs if name not in given]
    rest = [name for name in schema.argument_names if name not in given and name not in kwargs]
    bound = [*given.items(), *((name, kwargs[name]) for name in keywords)]
    return bound + [(name, schema.defaults.get(name)) for name in rest]


def _key_of(value: object, tensors: list[Tensor], columns: TensorColumns) -> object:
    """What tells one call's arguments from another's, quickly; the tensors met are appended in order."""
    if isinstance(value, Tensor):
        tensors.append(value)
        return (Tensor, columns.spec_number(value))
    kind = type(value)
    if kind in _PLAIN:
        return (kind, repr(value) if kind is float or kind is complex else value)
    if isinstance(value, list | tuple):
        return (kind, *[_key_of(item, tensors, columns) for item in value])
    if isinstance(value, dict):
        return (dict, *[(name, _key_of(item, tensors, columns)) for name, item in value.items()])
    try:
        hash(value)
    except TypeError:
        return (kind, id(value))
    return value
