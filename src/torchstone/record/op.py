"""Op calls: what was called (a signature, kept once) and each time it was called (a row of a table)."""

from collections.abc import Iterator
from enum import StrEnum

from torchstone.record.base import Record
from torchstone.record.tensor import TensorSpec
from torchstone.record.value import PLAIN_TYPES, Argument, Value, tensors_in


class Phase(StrEnum):
    """The part of a training step that an op ran in."""

    FORWARD = "forward"
    BACKWARD = "backward"


class OpSignature(Record, frozen=True, kw_only=True):
    """An op overload with everything about its arguments and results but the values inside tensors."""

    op: str  # "aten.mm.default"
    arguments: tuple[Argument, ...]
    output: Value

    @property
    def input_specs(self) -> tuple[TensorSpec, ...]:
        """The tensors among the arguments, in order."""
        found: list[TensorSpec] = []
        for argument in self.arguments:
            value = argument.value
            if type(value) is TensorSpec:
                found.append(value)
            elif type(value) not in PLAIN_TYPES:  # most arguments of an op are numbers
                found.extend(tensors_in(value))
        return tuple(found)

    @property
    def output_specs(self) -> tuple[TensorSpec, ...]:
        """The tensors in the result, in order."""
        output = self.output
        return (output,) if type(output) is TensorSpec else tuple(tensors_in(output))

    def argument(self, name: str) -> Value:
        """The value of one argument; a name that the schema does not have is a mistake of the caller."""
        for argument in self.arguments:
            if argument.name == name:
                return argument.value
        msg = f"{self.op} has no argument {name!r}"
        raise KeyError(msg)


class OpCall(Record, frozen=True, kw_only=True):
    """One op call: its signature and which tensors went in and came out."""

    index: int  # order of execution
    signature: OpSignature
    inputs: tuple[int, ...]  # tensor numbers, in the order of signature.input_specs
    outputs: tuple[int, ...]
    writes: tuple[int, ...]  # tensors changed in place: an `add_` writes its first input
    module_call: int  # row of the innermost module call running; -1 outside any
    phase: Phase

    @property
    def op(self) -> str:
        """The op overload, such as aten.mm.default."""
        return self.signature.op


class OpTable(Record, frozen=True, kw_only=True):
    """All op calls of a trace in order of execution, as columns; `table[i]` is call number i."""

    signatures: tuple[OpSignature, ...] = ()  # each distinct one once
    signature_of: tuple[int, ...] = ()
    inputs: tuple[tuple[int, ...], ...] = ()
    outputs: tuple[tuple[int, ...], ...] = ()
    module_calls: tuple[int, ...] = ()
    writes: dict[int, tuple[int, ...]] = {}  # only the calls that write
    forward_calls: int = 0  # calls from this number on ran in the backward pass

    def __len__(self) -> int:
        return len(self.signature_of)

    def __getitem__(self, index: int) -> OpCall:
        index = range(len(self))[index]  # counts from the end, too, and ends where the table ends
        return OpCall(
            index=index,
            signature=self.signatures[self.signature_of[index]],
            inputs=self.inputs[index],
            outputs=self.outputs[index],
            writes=self.writes.get(index, ()),
            module_call=self.module_calls[index],
            phase=Phase.FORWARD if index < self.forward_calls else Phase.BACKWARD,
        )

    def __iter__(self) -> Iterator[OpCall]:
        return map(self.__getitem__, range(len(self)))
