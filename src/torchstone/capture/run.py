"""One run of one model in one tensor mode: forward, backward, and where it failed."""

import traceback
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn

from torchstone.backends.interception import intercepted
from torchstone.capture.backward_in_place import notes_of_step, references_alone
from torchstone.capture.call_sites import NOT_THE_MODEL, CallSites
from torchstone.capture.describe import Describer, is_plain
from torchstone.capture.fingerprint import exchanged
from torchstone.capture.folding import fold
from torchstone.capture.kept_tensors import KeptTensors
from torchstone.capture.module_tree import ModuleTree
from torchstone.capture.ops import LinesOfNodes, Met, OpColumns, OpRecorder, nodes_so_far, origin_of
from torchstone.capture.restore_state import (
    LOOKS_WATCHED,
    inputs_in,
    modules_kept,
    one_thread,
    process_kept,
)
from torchstone.capture.reuse import Replayed, Reuse
from torchstone.capture.tables import (
    CallColumns,
    DescribedCalls,
    TensorColumns,
    argument_names,
    describe_arguments,
    storage_pointer,
)
from torchstone.capture.tensor_modes import RealWorld, StandInWorld
from torchstone.foreign import foreign_code, printable
from torchstone.numerics.written import WrittenTensors
from torchstone.record.module import ModuleSignature
from torchstone.record.trace import Failure, Provenance, Trace
from torchstone.record.value import Absent, Argument, Value
from torchstone.units import many

# An exception from a forward pass -> where and how it ended.


def failure_of(error: BaseException, *, module: str, op: str, arguments: str) -> Failure:
    """Describe an error with the line of the model's own code that led to it."""
    return Failure(
        module=module,
        op=op,
        arguments=arguments,
        error=f"{type(error).__name__}: {_first_words(error)}",
        location=_own_line(error),
    )


def _first_words(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else "no message"


def _own_line(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith(NOT_THE_MODEL)]
    if not frames:
        return ""
    frame = (own or frames)[-1]
    return f"{frame.filename}:{frame.lineno} in {frame.name}"


# The backward pass: run from all outputs, each op credited to the module whose forward op it undoes.


_OWNER = "torchstone_module_call"


def credit(begun: int, outputs: Iterable[Tensor], owner: object) -> None:
    """Credit a module call with the autograd nodes that were made since it began, but for those of inner calls.

    What lies behind the nodes of an inner call is looked for, too: the attention before an output projection. A node
    that accumulates the gradient of a parameter has the largest number there is, and belongs to the first call that
    is found to use it.
    """
    waiting: list[Any] = [tensor.grad_fn for tensor in outputs]
    met = set()
    while waiting:
        node = waiting.pop()
        if node is None or node in met or node._sequence_nr() < begun:
            continue
        met.add(node)
        _notes_of(node).setdefault(_OWNER, owner)
        waiting.extend(following for following, _ in node.next_functions)


def credited() -> Any:
    """Who is credited with the autograd node that is running; None outside a backward pass and for foreign nodes."""
    node: object = torch._C._current_autograd_node()
    return None if node is None else _notes_of(node).get(_OWNER)


def run_backward(output: object) -> None:
    """Run the backward pass from all floating-point and complex outputs, each with a gradient of ones."""
    describer = Describer()
    describer.describe(output)
    ends = [tensor for tensor in describer.tensors if tensor.requires_grad]
    if not ends:
        msg = "no output of the model depends on a trainable parameter"
        raise TypeError(msg)
    torch.autograd.backward(ends, [torch.ones_like(end) for end in ends])


class Backward:
    """Remembers which module call made which node of the autograd graph."""

    def __init__(self, recorder: OpRecorder) -> None:
        self._recorder = recorder
        recorder.lines_of_nodes = LinesOfNodes()
        references_alone()

    @staticmethod
    def attribute(begun: int, outputs: list[Tensor], call: int) -> None:
        """Credit a call with all nodes made since it began that no inner call made."""
        credit(begun, outputs, call)

    def run(self, output: object) -> None:
        """Run the backward pass, each op credited to the module call it undoes."""
        self._recorder.owner_of_backward = self._current_call
        run_backward(output)

    @staticmethod
    def _current_call() -> int:
        if torch._C._current_autograd_node() is None:
            return 0  # the gradients of ones at the outputs belong to the call of the model
        owner = credited()
        return -1 if owner is None else int(owner)


def _notes_of(node: Any) -> dict[str, object]:
    """What may be remembered at an autograd node."""
    notes: dict[str, object] = node.metadata
    return notes


# One run of one model in one world, written down.


_ABSENT = Absent()
_DIFFERENTIATES = "the forward pass ran with autograd, because the model differentiates inside it; reuse is off"


class _Signature:
    """What goes into one module call and what comes out, described once for calls that look the same.

    Plain values, tensors and lists, tuples and dictionaries of them are compared by their looks, quickly. Other
    objects, such as caches, are described each time.
    """

    __slots__ = ("_arguments", "_calls", "_known", "_layer", "_module", "_number", "_tensors")

    def __init__(self, tensors: TensorColumns, calls: CallColumns, module: nn.Module, layer: int | None) -> None:
        self._tensors, self._calls, self._module, self._layer = tensors, calls, module, layer
        self._arguments: tuple[Argument, ...] = ()
        self._known: DescribedCalls | None = None  # None where the arguments are more than their looks
        self._number: int | None = None

    def begin(self, args: tuple[object, ...], kwargs: dict[str, object]) -> list[Tensor]:
        """Describe the arguments before the call can change them; gives the tensors among them."""
        met = Met(self._tensors.spec_number)
        key = (type(self._module).forward, met.key_of(args), met.key_of(kwargs) if kwargs else None)
        described = self._tensors.known.module_arguments
        known = described.get(key) if met.lasting else None
        if known is None:
            describer = self._tensors.describer(self._layer)
            arguments = describe_arguments(self._module, args, kwargs, describer)
            if not met.lasting:
                self._arguments = arguments
                return describer.tensors
            known = described[key] = DescribedCalls(arguments)
        self._arguments, self._known = known.arguments, known
        return met.tensors

    def end(self, result: object) -> list[Tensor]:
        """Describe the result; gives the tensors in it."""
        met = Met(self._tensors.spec_number)
        looks = met.key_of(result)
        known = self._known if met.lasting else None
        signature = known.signatures.get(looks) if known is not None else None
        if signature is None:
            describer = self._tensors.describer(self._layer)
            signature = self._signature(describer.describe(result))
            if known is None:
                met.tensors = describer.tensors
            else:
                known.signatures[looks] = signature
        self._number = self._calls.number_signature(signature)
        return met.tensors

    def number(self) -> int:
        """The number of the signature; that of a call which did not end has no result."""
        return self._calls.number_signature(self._signature(_ABSENT)) if self._number is None else self._number

    def _signature(self, output: Value) -> ModuleSignature:
        return self._tensors.known.one_of(ModuleSignature(arguments=self._arguments, output=output))


class Run:
    """One forward pass, and a backward pass where asked for; `trace()` is what was seen of it."""

    def __init__(
        self,
        tree: ModuleTree,
        world: RealWorld | StandInWorld,
        *,
        reuse: bool,
        backward: bool,
        differentiable: bool = False,
    ) -> None:
        self.error: Exception | None = None
        self._raised: BaseException | None = None  # the same, unless its text cannot be shown
        self._model = tree.modules[0]
        self._world = world
        self._tree = tree
        self._tensors = TensorColumns(stand_in=world.stand_in)
        world.results = self._tensors.known.results
        self._ops = OpColumns()
        self._calls = CallColumns()
        self._sites = CallSites(Run.execute.__code__, Run._call.__code__)
        self._recorder = OpRecorder(world, self._tensors, self._ops, self._sites)
        self._backward = Backward(self._recorder) if backward else None
        self._differentiable = differentiable  # autograd is on in a forward pass that is recorded alone
        self._reuse: Reuse | None = None
        if reuse and isinstance(world, StandInWorld) and not backward:
            self._reuse = Reuse(world, self._tree, self._recorder, self._calls)
        else:
            self._tensors.lifetimes.simulate_allocator()
        self._elsewhere: list[nn.Module] = []  # called on other threads
        self._held_numbers: dict[int, int] = {}  # id of each parameter and buffer as the model holds it -> its number
        self._stand_ins: dict[int, Tensor] = {}  # by id: what runs in the place of plain ones among these

    def execute(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Run the model; an exception it raises is kept, not passed on."""
        with ExitStack() as kept:
            if self._world.stand_in:  # the few values that are computed there are small
                kept.enter_context(one_thread())
            args, kwargs = inputs_in(self._world, args, kwargs)
            kept.callback(self._tensors.forget_marks)
            kept.enter_context(process_kept(grad=self._differentiable or self._backward is not None))
            kept.enter_context(LOOKS_WATCHED)
            self._kept = KeptTensors(self._tree)
            modules = kept.enter_context(modules_kept(self._tree, real=not self._world.stand_in))
            written = WrittenTensors(self._tensors.was_there)
            self._recorder.before_write = written.save
            kept.enter_context(written.watching())
            self._held_numbers = self._tensors.number_held(self._tree.held_tensors(), self._world.exchanges)
            with exchanged(self._tree.modules, self._held_as, self._let_go) as buffers:
                ran = self._run(args, kwargs)
            self._find_new_states(modules.new_tensors(buffers))
            if ran.cause is None:
                self._find_changed_inputs(args, kwargs)
            else:
                self._raised, self.error = ran.cause, printable(ran.error or ran.cause)

    def _run(self, args: tuple[object, ...], kwargs: dict[str, object]) -> foreign_code:
        with ExitStack() as watched:
            self._number_inputs(args, kwargs)
            call = intercepted(self._tree.modules, self._call, self._elsewhere.append)
            self._really_call = watched.enter_context(call)
            if self._reuse is not None:
                watched.enter_context(self._reuse.watching())
            self._kept.count_own()
            self._tensors.lifetimes.ask(self._kept.gone)
            # a model may raise anything, and that is a result
            with foreign_code(exit_is_answer=True, exhaustion_is_answer=True) as ran:
                self._tensors.lifetimes.start()
                with self._recorder:
                    output = self._model(*args, **kwargs)
                    if self._backward is not None:
                        self._ops.forward_calls = len(self._ops)
                        self._backward.run(output)
                        self._find_gradients()
            self._tensors.lifetimes.settle()
        return ran

    def _held_as(self, tensor: Tensor) -> Tensor:
        """What a parameter or buffer is in this world, with the number of the original."""
        known = self._stand_ins.get(id(tensor))
        if known is not None:
            return known
        if not self._tensors.was_held(tensor):  # the model put it there while it runs
            return tensor
        if isinstance(self._world, StandInWorld) and id(tensor) in self._tensors.exchanged:
            held = self._stand_ins[id(tensor)] = self._world.hold_plain(tensor)
            self._stand_for(tensor, held)
            return held
        held = self._world.hold(tensor)
        if held is not tensor and not self._tensors.is_known(held):
            self._stand_for(tensor, held)
        return held

    def _let_go(self, tensor: Tensor) -> None:
        """The model put something else in the place of what a module held, which then dies as any tensor does."""
        number = self._held_numbers.get(id(tensor))
        if number is None:
            return
        self._tensors.let_go(number)
        if self._reuse is not None:
            self._reuse.forget_readings()
        stand_in = self._world.forget(tensor)
        if stand_in is not tensor:
            self._stand_ins.pop(id(tensor), None)
            self._tensors.let_stand_in_go(number, stand_in)
        self._kept.let_go(tensor)  # which other code may hold as it is

    def _stand_for(self, tensor: Tensor, held: Tensor) -> None:
        """Let a stand-in have the number and the memory of the tensor that a module holds."""
        self._tensors.mark_like(held, tensor)
        storage = self._tensors.storage_of[self._tensors.number_of(held)]
        self._tensors.lifetimes.stands_at(storage_pointer(held), storage)

    def _find_new_states(self, held: Iterable[tuple[int, str, Tensor]]) -> None:
        """Which tensors modules hold at the end, in the place of others or of none."""
        for module, name, tensor in held:
            if self._tensors.is_known(tensor):
                path = self._tree.paths[module]
                self._tensors.left[f"{path}.{name}" if path else name] = self._tensors.number_of(tensor)

    def _find_changed_inputs(self, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
        """Which tensors objects that were given contain at the end, such as a cache that is not given back.

        A tensor is named by its argument and its place there, as in the description of the call.
        """
        known = {*self._calls.inputs[0], *self._calls.outputs[0]} if self._calls.numbers else set()
        for name, value in (*zip(argument_names(self._model, len(args)), args, strict=True), *kwargs.items()):
            if isinstance(value, Tensor) or is_plain(value):
                continue
            describer = self._tensors.describer(self._tree.layer_of(self._model))
            describer.describe(value)
            for position, tensor in enumerate(describer.tensors):
                if self._tensors.is_known(tensor) and self._tensors.number_of(tensor) not in known:
                    self._tensors.left[f"{name}[{position}]"] = self._tensors.number_of(tensor)

    def _find_gradients(self) -> None:
        """Which tensors a backward pass left as gradients of parameters."""
        for parameter in self._model.parameters():
            if parameter.grad is not None and self._tensors.is_known(parameter.grad):
                number = self._tensors.number_of(parameter)
                self._tensors.gradients[number] = self._tensors.number_of(parameter.grad)

    def _number_inputs(self, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
        for name, value in (*zip(argument_names(self._model, len(args)), args, strict=True), *kwargs.items()):
            describer = self._tensors.describer()
            describer.describe(value)
            for position, tensor in enumerate(describer.tensors):
                if not self._tensors.is_known(tensor):
                    label = name if len(describer.tensors) == 1 else f"{name}[{position}]"
                    self._tensors.add_external(tensor, kind="input", name=label)

    def _call(self, module: nn.Module, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
        """One call of one module, taken over from an equal one where that is sound."""
        sites, reuse = self._sites, self._reuse
        outer = sites.runs_no_line
        sites.begin_call()
        try:
            asked = None if reuse is None else reuse.take_over(module, args, kwargs)
            if reuse is None or asked is None:
                return self._run_module(module, args, kwargs)
            if isinstance(asked, Replayed):
                return asked.result
            return reuse.learn(asked, args, kwargs, self._run_module)
        finally:
            sites.end_call()
            sites.runs_no_line = outer

    def _run_module(self, module: nn.Module, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
        recorder, calls, tensors = self._recorder, self._calls, self._tensors
        outer = recorder.current_call
        number, layer, runs_no_line = self._tree.facts(module)
        row = calls.begin(number, outer, len(self._ops), self._sites.of_call)
        signature = _Signature(tensors, calls, module, layer)
        calls.inputs[row] = tuple(map(tensors.number_of, signature.begin(args, kwargs)))
        begun = 0 if self._backward is None else nodes_so_far()
        recorder.current_call = row
        self._sites.runs_no_line = runs_no_line
        try:
            result = self._really_call(module, args, kwargs)
            made = signature.end(result)
            calls.outputs[row] = tuple(map(tensors.number_of, made))
            if self._backward is not None:
                self._backward.attribute(begun, made, row)
        except BaseException as error:
            origin = origin_of(error, recorder.run)
            if origin.module_call < 0:
                origin.module_call = row
            raise
        finally:
            recorder.current_call = outer
            calls.end_ops[row] = len(self._ops)
            calls.signature_of[row] = signature.number()
        return result

    def trace(self, provenance: Provenance, notes: tuple[str, ...]) -> Trace:
        """What was seen, as a record."""
        repeats = fold(self._reuse.rows) if self._reuse is not None else ()
        copied = [range(one.at.op, one.stop.op) for one in repeats]
        return Trace(
            provenance=provenance,
            modules=self._tree.records(self._held_numbers),
            sources=self._tree.sources(),
            recorded_tensors=self._tensors.freeze([range(one.at.tensor, one.stop.tensor) for one in repeats]),
            recorded_calls=self._calls.freeze(),
            recorded_ops=self._ops.freeze(copied),
            repeats=repeats,
            lines=self._sites.freeze(self._ops.freeze_sites(copied), tuple(self._calls.sites)),
            failure=self._failure(),
            eager_memory=self._tensors.lifetimes.observed(),
            assumed=self._world.assumptions(),
            notes=notes,
        )

    def close(self) -> None:
        """Let go of what refers to itself, or the garbage collector has to look through all of it."""
        self._tensors.lifetimes.close()
        self._stand_ins.clear()
        if self._reuse is not None:
            self._reuse.close()
        if isinstance(self._world, StandInWorld):
            self._world.close()

    @property
    def differences(self) -> tuple[str, ...]:
        """What happened here that would not happen in a real run."""
        return tuple(self._world.differences)

    @property
    def reused_ops(self) -> int:
        """Op calls that were taken over from an equal module call."""
        return self._reuse.reused_ops if self._reuse is not None else 0

    @property
    def notes(self) -> tuple[str, ...]:
        """What is not in the trace; whether the model needed autograd; which modules ran although others are equal."""
        differentiates = (_DIFFERENTIATES,) if self._differentiable else ()
        ops = [] if self._backward is None else [signature.op for signature in self._ops.signatures]
        step = notes_of_step(ops, stand_in=self._world.stand_in)
        return (
            *self._unrecorded(),
            *differentiates,
            *step,
            *(self._reuse.off.notes() if self._reuse is not None else ()),
        )

    def _unrecorded(self) -> Iterator[str]:
        if self._elsewhere:
            names = ", ".join(sorted({type(module).__name__ for module in self._elsewhere}))
            calls = many(len(self._elsewhere), "module call")
            yield f"{calls} on other threads, whose ops are not recorded: {names}"
        if self._tensors.unrecorded:
            made = many(self._tensors.unrecorded, "tensor")
            yield f"{made} made by ops that are not recorded: on other threads, or where torch's modes are off"

    def _failure(self) -> Failure | None:
        if self.error is None or self._raised is None:
            return None
        origin = origin_of(self._raised, self._recorder.run)
        row = origin.module_call
        return failure_of(
            self.error,
            module=self._tree.paths[self._calls.modules[row]] if row >= 0 else "",
            op=origin.op,
            arguments=origin.arguments,
        )
