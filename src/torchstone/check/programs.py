"""One module call of a trace -> a program of its ops, and programs of some of them.

A name is `t` and the number of the tensor in the trace. What a call reads and does not make itself are its externals:
their values come from the weights, or were kept when the model really ran.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from torchstone.backends.recorded import NotReplayableError, program_of_calls, tensor_name
from torchstone.record.base import Record
from torchstone.record.op import OpCall
from torchstone.record.trace import Trace

_HELD = ("parameter", "buffer")
_UNSET = ("empty", "new_empty", "empty_like", "empty_strided", "new_empty_strided", "empty_permuted")
_RANDOM = (
    "bernoulli", "bernoulli_", "dropout", "native_dropout", "rand", "rand_like", "randn", "randn_like", "randint",
    "randint_like", "randperm", "normal", "normal_", "uniform", "uniform_", "multinomial", "exponential_", "geometric_",
    "log_normal_", "cauchy_", "poisson",
)  # fmt: skip

_FOR_CPU = {  # an op that only the CPU has -> what the model called, which every backend may know
    "aten._scaled_dot_product_flash_attention_for_cpu.default": "aten.scaled_dot_product_attention.default",
}

_ORDER_OF_EQUALS = ("aten.sort.default", "aten.topk.default")  # which of two equal elements comes first is not defined

Description = dict[str, Any]


class External(Record, frozen=True, kw_only=True):
    """A tensor that a call reads and does not make."""

    name: str
    parameter_path: str | None  # the path of the parameter or buffer it is; None: its value must be kept
    op: int  # the op call that reads it first
    position: int  # among the tensors of that op call


class Step(Record, frozen=True, kw_only=True):
    """One op call of a program."""

    op_call: int  # its number in the trace
    op: str
    description: dict[str, Any]
    reads: tuple[str, ...]
    makes: tuple[str, ...]  # what it gives or writes to
    own: bool  # of the module itself, not of one inside it

    @property
    def is_random(self) -> bool:
        """It draws random numbers, or leaves its result as it found it."""
        return self.op.split(".")[1] in (*_RANDOM, *_UNSET)

    @property
    def has_loose_places(self) -> bool:
        """Its second result are places, and those of equal elements may come in any order."""
        return self.op in _ORDER_OF_EQUALS and len(self.makes) > 1

    @property
    def stands_alone(self) -> bool:
        """Whether it can be judged by itself: it takes tensors, gives tensors, and gives the same ones again."""
        return bool(self.reads) and bool(self.makes) and not self.is_random


class CallProgram(Record, frozen=True, kw_only=True):
    """All op calls of one module call."""

    row: int
    steps: tuple[Step, ...]
    outputs: tuple[str, ...]  # of the module call, as far as it made them
    externals: dict[str, External]
    idle: frozenset[str] = frozenset()  # made, but read by no op of the model and given by no module
    replayable: bool = True  # False: an op takes something that only existed while the model ran


def program_of_call(trace: Trace, row: int) -> CallProgram:
    """The ops inside a module call, those of the modules in it too."""
    call = trace.module_calls[row]
    written = _written_storages(trace)
    read = {number for inputs in trace.ops.inputs for number in inputs}
    paths = {external.tensor: external for external in trace.tensors.external}
    made: set[int] = set()
    externals: dict[str, External] = {}
    steps = []
    for index in range(call.first_op, call.end_op):
        op = trace.ops[index]
        for position, number in enumerate(op.inputs):
            if number not in made and tensor_name(number) not in externals:
                known = paths.get(number)
                stays = known is not None and known.kind in _HELD and trace.tensors.storage_of[number] not in written
                externals[tensor_name(number)] = External(
                    name=tensor_name(number),
                    parameter_path=known.name if known and stays else None,
                    op=index,
                    position=position,
                )
        made.update(op.outputs)
        steps.append(_portable(_step(op, own=op.module_call == row), read, op))
    outputs = tuple(dict.fromkeys(tensor_name(number) for number in call.outputs if number in made))
    return CallProgram(
        row=row,
        steps=tuple(steps),
        outputs=outputs,
        externals=externals,
        idle=frozenset(tensor_name(number) for number in made - read - _given(trace)),
        replayable=all(step.description for step in steps),
    )


def program_of_steps(program: CallProgram, chosen: Collection[int]) -> Description:
    """Some steps of a call as a program of their own; it returns every tensor that is read outside of them.

    A step that makes no tensor is dropped: what the model read from it, the value of a number say, is recorded with the
    steps after it.
    """
    picked = [place for place in sorted(chosen) if program.steps[place].makes]
    inside: dict[str, None] = {}
    given: dict[str, None] = {}
    for place in picked:
        step = program.steps[place]
        given |= dict.fromkeys(name for name in step.reads if name not in inside)
        inside |= dict.fromkeys(step.makes)
    outputs = _read_outside(program, picked, inside) or list(inside)
    loose = {step.makes[1] for step in map(program.steps.__getitem__, picked) if step.has_loose_places}
    outputs = [name for name in outputs if name not in loose] or outputs
    constants = [
        name for name in given if name in program.externals and program.externals[name].parameter_path is not None
    ]
    return {
        "inputs": [name for name in given if name not in constants],
        "constants": constants,
        "steps": [program.steps[place].description for place in picked],
        "outputs": [{"tensor": name} for name in outputs],
    }


def _read_outside(program: CallProgram, picked: Sequence[int], inside: Collection[str]) -> list[str]:
    """Of the tensors made in the chosen steps, those that are read after them elsewhere, or not at all."""
    chosen = set(picked)
    made_at = {name: place for place in picked for name in program.steps[place].makes}
    read_elsewhere: set[str] = set(program.outputs)
    read_again: set[str] = set()
    for place, step in enumerate(program.steps):
        later = [name for name in step.reads if made_at.get(name, place) < place]
        read_again.update(later)
        if place not in chosen:
            read_elsewhere.update(later)
    wanted = [name for name in inside if name in read_elsewhere or name not in read_again]
    return [name for name in wanted if name not in program.idle] or wanted  # no op reads the statistics of a norm


def _step(op: OpCall, *, own: bool) -> Step:
    return Step(
        op_call=op.index,
        op=op.op,
        description=_description(op),
        reads=tuple(dict.fromkeys(map(tensor_name, op.inputs))),
        makes=tuple(dict.fromkeys(map(tensor_name, (*op.outputs, *op.writes)))),
        own=own,
    )


def _portable(step: Step, read: Collection[int], op: OpCall) -> Step:
    """The op as the model called it, where the recorded one is for the CPU only and no op reads its other results."""
    called = _FOR_CPU.get(step.op)
    if called is None or not step.description or any(number in read for number in op.outputs[1:]):
        return step
    first = step.makes[:1]
    arguments = step.description["kwargs"] | step.description.get("as_called", {})
    description = {**step.description, "op": called, "kwargs": arguments, "outputs": list(first)}
    return msgspec.structs.replace(step, description=description, makes=first)


def _description(op: OpCall) -> Description:
    try:
        (step,) = program_of_calls([op])["steps"]
    except NotReplayableError:
        return {}
    assert isinstance(step, dict)  # noqa: S101 - one call is one step
    return step


def _given(trace: Trace) -> set[int]:
    return {number for outputs in trace.module_calls.outputs for number in outputs}


def _written_storages(trace: Trace) -> set[int]:
    storage_of = trace.tensors.storage_of
    return {storage_of[number] for numbers in trace.ops.writes.values() for number in numbers}


def values_to_record(programs: Mapping[int, CallProgram]) -> dict[int, list[tuple[int, int, str]]]:
    """For each op call: which of its tensors to keep, as position, row of the module call, and name."""
    wanted: dict[int, list[tuple[int, int, str]]] = {}
    for row, program in programs.items():
        for external in program.externals.values():
            if external.parameter_path is None:
                wanted.setdefault(external.op, []).append((external.position, row, external.name))
    return wanted
