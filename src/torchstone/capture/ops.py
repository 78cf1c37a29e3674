"""The op recorder: a dispatch mode that sees every op that reaches a kernel and writes it down with its schema."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor
from torch._ops import HigherOrderOperator, OpOverload
from torch._subclasses.fake_tensor import FakeTensor

from torchstone.backends.interception import KernelOpMode, OpArguments, OpKeywords, op_name
from torchstone.capture.backward_in_place import RunningNode, in_place_twin, is_called_by_engine
from torchstone.capture.call_sites import CallSites
from torchstone.capture.describe import Describer
from torchstone.capture.tables import TensorColumns, pick, spans_without, storage_pointer, without
from torchstone.record.op import OpSignature, OpTable
from torchstone.record.value import Argument, show_value

# What an op's own schema says: argument names and defaults, what it writes, whether it reads values back.


MASKS = (torch.bool, torch.uint8)
_INDEX = torch.ops.aten.index.Tensor
_READS_VALUES = (torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OpSchema:
    """The facts about one op overload that recording needs; each op has one, which stands for it in keys."""

    name: str
    argument_names: tuple[str, ...]
    defaults: dict[str, object]
    written: tuple[str, ...]  # arguments changed in place
    renews_its_input: bool  # changes the shape or strides of its input in place, as squeeze_ does
    resizes: bool  # may give the memory that it writes to another size
    returns: int  # values that it gives
    gives_views: bool  # of what it is given, by what its schema says
    reads_values: bool  # its result, or the result's shape, is read from the values of a tensor
    in_place_twin: OpOverload | None = None  # what autograd may call in its place when no mode looks on
    defaults_described: dict[str, Argument] = field(default_factory=dict)

    def default(self, name: str) -> Argument:
        """The default of an argument, described once."""
        known = self.defaults_described.get(name)
        if known is None:
            value = Describer().describe(self.defaults.get(name))
            known = self.defaults_described[name] = Argument(name=name, value=value)
        return known


_schemas: dict[int, tuple[OpOverload | HigherOrderOperator, OpSchema]] = {}  # by id: to hash an op runs Python code


def schema_of(op: OpOverload | HigherOrderOperator) -> OpSchema:
    """Look an op up; a higher-order op has no schema and only a name."""
    known = _schemas.get(id(op))
    if known is None:
        known = _schemas[id(op)] = (op, _read_schema(op))
    return known[1]


def _read_schema(op: OpOverload | HigherOrderOperator) -> OpSchema:
    if isinstance(op, HigherOrderOperator):
        return OpSchema(name=op_name(op), argument_names=(), defaults={}, written=(), renews_its_input=False,
                        resizes=False, returns=1, gives_views=False, reads_values=True)  # fmt: skip
    arguments = op._schema.arguments
    return OpSchema(
        name=op_name(op),
        argument_names=tuple(argument.name for argument in arguments),
        defaults={argument.name: argument.default_value for argument in arguments if argument.has_default_value()},
        written=tuple(argument.name for argument in arguments if argument.alias_info and argument.alias_info.is_write),
        renews_its_input=torch.Tag.inplace_view in op.tags,
        resizes=op_name(op).startswith("aten.resize_") or any(argument.is_out for argument in arguments),
        returns=len(op._schema.returns),
        gives_views=any(one.alias_info is not None for one in op._schema.returns),
        reads_values=any(tag in op.tags for tag in _READS_VALUES),
        in_place_twin=in_place_twin(op_name(op)),
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


_KEYS = frozenset({int, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format})
_PLAIN = frozenset({float, bool, complex})  # equal to numbers of other types
_WITHOUT_VALUES = frozenset({FakeTensor})


_VIEW_WRITTEN = (
    "autograd undoes an op in place on a view without a zeroed copy of the whole (new_zeros, copy_, as_strided), "
    "and calls the op of the view once more; layers that do not write in place are the same in both"
)


class Executes(Protocol):
    """The world an op runs in: real, fake or meta."""

    reads_are_repeatable: bool  # equal calls on equal inputs read back equal values
    gave_new: bool  # the result of the last op is known to be new memory, and nothing that was there before
    changed_values: bool  # the last op is known to have changed the values of its first argument, and nothing else
    stand_in: bool  # tensors have no values
    differences: dict[str, None]  # what it does that a real run does not

    def execute(
        self, op: OpOverload, args: tuple[object, ...], kwargs: Mapping[str, object], call: int | None = None
    ) -> object:
        """Run an op and give its result; calls that look the same to every capture have the same number."""

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
        return tuple(pick(self.sites, spans_without(self.rows, copied)))

    def freeze(self, copied: Sequence[range] = ()) -> OpTable:
        """The columns without calls that turned out to be copies, as a record."""
        spans = spans_without(self.rows, copied)
        return OpTable(
            signatures=tuple(self.signatures),
            signature_of=tuple(pick(self.signature_of, spans)),
            inputs=tuple(pick(self.inputs, spans)),
            outputs=tuple(pick(self.outputs, spans)),
            module_calls=tuple(pick(self.module_calls, spans)),
            writes={number: self.writes[number] for number in without(list(self.writes), copied)},
            forward_calls=len(self) if self.forward_calls is None else self.forward_calls,
        )


_ORIGIN = "_torchstone_origin"


@dataclass(slots=True, kw_only=True)
class Origin:
    """The op and the module call that an error came from."""

    run: object
    op: str = ""
    arguments: str = ""
    module_call: int = -1


def origin_of(error: BaseException, run: object) -> Origin:
    """Where an error of a run came from, noted at the error itself.

    A model may catch it. Whoever holds an error holds its frames, and with them every tensor of their variables.
    """
    noted = vars(error)
    origin = noted.get(_ORIGIN)
    if not isinstance(origin, Origin) or origin.run is not run:
        origin = noted[_ORIGIN] = Origin(run=run)
    return origin


def nodes_so_far() -> int:
    """How many autograd nodes were made on this thread: those of a call that begins now have this number or more."""
    return int(torch.autograd._get_sequence_nr())  # type: ignore[attr-defined] # torch does not list it


class LinesOfNodes:
    """The call site of each autograd node, by its sequence number: autograd makes the node of an op before it runs."""

    def __init__(self) -> None:
        self._sites: dict[int, int] = {}
        self._next = nodes_so_far()

    def note(self, site: int) -> None:
        """An op runs at this site: the nodes that were made since the last op are its own."""
        made = nodes_so_far()
        for number in range(self._next, made):
            self._sites[number] = site
        self._next = made

    def of_running_node(self) -> int:
        """The site of the node that is running; -1 outside of nodes, and for one that adds up a gradient."""
        node: Any = torch._C._current_autograd_node()
        return -1 if node is None else self._sites.get(node._sequence_nr(), -1)


class OpRecorder(KernelOpMode):
    """Sees every op call and writes it down: what went in before it runs, what came out after.

    A capture compiles nothing, so that calls need not be kept from torch's compiler one by one.
    """

    __torch_dispatch__ = KernelOpMode.receive

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __init__(self, world: Executes, tensors: TensorColumns, ops: OpColumns, sites: CallSites) -> None:
        super().__init__()
        self._world = world
        self.tensors = tensors
        self.ops = ops
        self.sites = sites
        self.current_call = -1  # row of the innermost module call running
        self.value_reads = 0  # calls so far whose result was read from the values of a tensor
        self.owner_of_backward: Callable[[], int] | None = None  # the module call behind the autograd node running
        self.lines_of_nodes: LinesOfNodes | None = None  # where a backward pass is to follow
        self.before_write: Callable[[Tensor], object] = id  # called with each tensor that an op is going to write
        self.run = object()  # stands for this run at its errors

    def run_op(self, func: Any, args: OpArguments, kwargs: OpKeywords) -> object:
        """Run an op in the world of this capture, and record it."""
        schema = schema_of(func)
        twin = None if self.owner_of_backward is None else self._twin_of(schema, args, kwargs)
        if twin is not None:
            func, schema = twin, schema_of(twin)
        world, tensors = self._world, self.tensors
        given = Met(tensors.spec_number)
        key = (schema, given.key_of(args), given.key_of(kwargs) if kwargs else None)
        call = tensors.known.call_number(key) if given.lasting else None
        inputs = self._number_inputs(given.tensors)
        if schema.written:
            self._tell_of_writes(schema, given.tensors, args, kwargs)
        try:
            result = world.execute(func, args, kwargs, None if schema.written else call)
        except BaseException as error:
            origin = origin_of(error, self.run)
            origin.op, origin.arguments = schema.name, self._show(schema, args, kwargs)
            raise
        result = result if twin is None else args[0]  # autograd goes on with what it is given here
        if schema.reads_values and not world.reads_are_repeatable and reads_values(func, schema, args):
            self.value_reads += 1
        looks: object
        written: tuple[int, ...] | None
        if world.changed_values:
            looks, outputs, written = (Tensor, given.numbers[0]), inputs[:1], inputs[:1]
        else:
            if schema.written or not schema.argument_names:  # of a higher-order op it is not known what it writes
                tensors.forget_looks(given.tensors)
                for tensor in given.tensors if schema.resizes else ():
                    tensors.lifetimes.measure_again(tensor)
                call = None  # an op that writes may change the looks of what it was given
            looks, outputs, lasting = self._number_outputs(schema, (given.tensors, inputs), result, call)
            call = call if lasting else None
            written = self._written(schema, args, kwargs) if schema.written else None
        if written and written[0] in inputs and self.lines_of_nodes is not None and world.stand_in:
            self._note_view(given.tensors[inputs.index(written[0])])
        whole_key = (key if call is None else call, looks)
        signature = self.ops.numbers.get(whole_key)
        if signature is None:
            signature = self.ops.numbers[whole_key] = len(self.ops.signatures)
            self.ops.signatures.append(self._described(schema, (args, kwargs, result), key, whole_key))
        self._append(signature, inputs, outputs, written)
        return result

    def _tell_of_writes(
        self, schema: OpSchema, given: list[Tensor], args: tuple[object, ...], kwargs: Mapping[str, object]
    ) -> None:
        if _WITHOUT_VALUES.issuperset(map(type, given)):
            return
        for tensor in _written_by(schema, args, kwargs):
            self.before_write(tensor)

    def _twin_of(self, schema: OpSchema, args: OpArguments, kwargs: OpKeywords) -> OpOverload | None:
        """The op in place that a real backward pass calls in the place of this one, because no mode looks on."""
        node = RunningNode.now(len(self.tensors))  # each first op of a node is noted
        twin = schema.in_place_twin
        if node is None or twin is None or not is_called_by_engine(sys._getframe(2).f_back):
            return None
        first = self.tensors.numbers_of([args[0]])
        return twin if first is not None and node.runs_in_place(twin, args, kwargs, first[0]) else None

    def _note_view(self, written: Tensor) -> None:
        """Autograd follows a view of a stand-in by the op that made it, and one of real memory by its strides."""
        if written.requires_grad and written._is_view():
            self._world.differences[_VIEW_WRITTEN] = None

    def _number_inputs(self, given: list[Tensor]) -> tuple[int, ...]:
        numbers = self.tensors.numbers_of(given)
        if numbers is None:
            for tensor in given:
                if not self.tensors.is_known(tensor):
                    self._world.met_unnumbered(tensor)
            numbers = [self.tensors.number_of(tensor) for tensor in given]
        return tuple(numbers)

    def _append(
        self, signature: int, inputs: tuple[int, ...], outputs: tuple[int, ...], written: tuple[int, ...] | None
    ) -> None:
        ops = self.ops
        number = len(ops)
        if written is not None:
            ops.writes[number] = written
        ops.rows.append(number)
        ops.signature_of.append(signature)
        ops.inputs.append(inputs)
        ops.outputs.append(outputs)
        ops.module_calls.append(self.current_call if self.owner_of_backward is None else self.owner_of_backward())
        ops.sites.append(self._site())

    def _site(self) -> int:
        """The call site of an op; in a backward pass that of the forward op whose autograd node is running."""
        if self.lines_of_nodes is None:
            return self.sites.here()
        if self.owner_of_backward is not None:
            return self.lines_of_nodes.of_running_node()
        site = self.sites.here()
        self.lines_of_nodes.note(site)
        return site

    def _number_outputs(
        self, schema: OpSchema, given: tuple[list[Tensor], tuple[int, ...]], result: object, call: int | None
    ) -> tuple[object, tuple[int, ...], bool]:
        """What the result of a call looks like, the numbers of its tensors, and if it looks so to every capture."""
        tensors, new = self.tensors, self._world.gave_new
        known = tensors.known.made.get(call) if new and call is not None else None
        if known is not None:  # new fake tensors look as they did the last time
            looks, specs = known
            results: Any = (result,) if type(result) is FakeTensor else result
            return looks, tuple([tensors.add_new(*one) for one in zip(results, specs, strict=True)]), True
        made = Met(tensors.spec_number)
        looks = made.key_of(result)
        if not made.tensors:
            return looks, (), made.lasting
        if not new:
            return looks, tuple(self._number_views(schema, given, made)), made.lasting
        if call is not None and made.lasting and all(type(tensor) is FakeTensor for tensor in made.tensors):
            tensors.known.made[call] = (looks, tuple(made.numbers))
        outputs = tuple([tensors.add_new(*one) for one in zip(made.tensors, made.numbers, strict=True)])
        return looks, outputs, made.lasting

    def _number_views(
        self, schema: OpSchema, given: tuple[list[Tensor], tuple[int, ...]], made: "Met"
    ) -> Iterator[int]:
        """The numbers of results that may be, or share memory with, what an op was given."""
        tensors = self.tensors
        storages: dict[int | None, int] = {}
        for tensor, number in zip(*given, strict=True):
            storages[storage_pointer(tensor)] = tensors.storage_of[number]
            ran = self._world.ran_as(tensor)
            if ran is not tensor:
                storages[storage_pointer(ran)] = tensors.storage_of[number]
        storages.pop(None, None)
        for tensor, spec in zip(made.tensors, made.numbers, strict=True):
            if tensors.is_known(tensor) and not schema.renews_its_input:
                number = tensors.number_of(tensor)
                if not schema.resizes or tensors.has_shape(number, tensor):
                    yield number
                    continue
            pointer = storage_pointer(tensor)
            storage = storages.get(pointer)
            if storage is None:
                storage = storages[pointer] = tensors.new_storage()
                tensors.lifetimes.born(tensor, storage)
            yield tensors.add(tensor, storage, spec)

    def _written(self, schema: OpSchema, args: tuple[object, ...], kwargs: Mapping[str, object]) -> tuple[int, ...]:
        return tuple(map(self.tensors.number_of, _written_by(schema, args, kwargs)))

    def _described(
        self,
        schema: OpSchema,
        values: tuple[tuple[object, ...], OpKeywords, object],
        given: tuple[OpSchema, Any, Any],
        key: tuple[object, object],
    ) -> OpSignature:
        """The description of a call; that of one which looks the same to every capture is made once for all.

        `given` is the key of the arguments, and `key` begins with the number of a call that looks the same, or with
        `given` where there is none.
        """
        args, kwargs, result = values
        known = self.tensors.known
        if key[0] is given:
            describer = self.tensors.describer()
            return OpSignature(
                op=schema.name,
                arguments=tuple(
                    [Argument(name=name, value=describer.describe(one)) for name, one in _bind(schema, args, kwargs)]
                ),
                output=describer.describe(result),
            )
        signature = known.signatures.get(key)
        if signature is None:
            names = schema.argument_names
            if kwargs:
                keys = {**dict(zip(names, given[1][1:], strict=False)), **dict(given[2][1:])}
                arguments = [
                    known.argument(name, keys[name], value) if name in keys else schema.default(name)
                    for name, value in _bind(schema, args, kwargs)
                ]
            else:
                arguments = list(map(known.argument, names, given[1][1:], args))
                arguments += map(schema.default, names[len(args) :])
            output = known.argument("", key[1], result).value
            signature = known.signatures[key] = OpSignature(op=schema.name, arguments=tuple(arguments), output=output)
        return signature

    def _show(self, schema: OpSchema, args: tuple[object, ...], kwargs: Mapping[str, object]) -> str:
        describer = self.tensors.describer()
        given = (*zip(schema.argument_names or map(str, range(len(args))), args, strict=False), *kwargs.items())
        return ", ".join(f"{name}={show_value(describer.describe(value))}" for name, value in given)


def _written_by(schema: OpSchema, args: tuple[object, ...], kwargs: Mapping[str, object]) -> list[Tensor]:
    """The tensors that an op changes in place."""
    given = (*zip(schema.argument_names, args, strict=False), *kwargs.items())
    return list(tensors_in([value for name, value in given if name in schema.written]))


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


class Met:
    """The tensors met in the arguments or the result of a call, in order, with the numbers of their descriptions."""

    __slots__ = ("_spec_number", "lasting", "numbers", "tensors")

    def __init__(self, spec_number: Callable[[Tensor], int]) -> None:
        self._spec_number = spec_number
        self.tensors: list[Tensor] = []
        self.numbers: list[int] = []
        self.lasting = True  # whether the key means the same after this capture

    def key_of(self, value: object) -> object:
        """What tells one call's arguments from another's, quickly."""
        kind = type(value)
        if kind is tuple or kind is list:
            if _KEYS.issuperset(map(type, value)):  # type: ignore[call-overload]
                return (kind, *value)  # type: ignore[misc]
            return (kind, *[item if type(item) in _KEYS else self.key_of(item) for item in value])  # type: ignore[attr-defined]
        if kind is FakeTensor or isinstance(value, Tensor):
            number = self._spec_number(value)  # type: ignore[arg-type]
            self.tensors.append(value)  # type: ignore[arg-type]
            self.numbers.append(number)
            return (Tensor, number)
        if kind in _KEYS:
            return value
        if kind in _PLAIN:
            return (kind, repr(value) if kind is float or kind is complex else value)
        if isinstance(value, list | tuple):
            return (kind, *[item if type(item) in _KEYS else self.key_of(item) for item in value])
        if kind is dict:
            return (dict, *[(name, self.key_of(item)) for name, item in value.items()])  # type: ignore[attr-defined]
        self.lasting = False
        try:
            hash(value)
        except TypeError:
            return (kind, id(value))
        return value
