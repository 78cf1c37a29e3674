"""The tables of a trace while they grow: tensors and module calls, each distinct description kept once."""

import inspect
from bisect import bisect_left
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from torchstone.capture.describe import Describer, spec_of
from torchstone.record.module import ModuleCallTable, ModuleSignature
from torchstone.record.tensor import ExternalTensor, TensorSpec, TensorTable
from torchstone.record.value import Absent, Argument

# The trace while it grows: columns of tensors, op calls and module calls, each distinct description kept once.


_MARK = "_torchstone_number"


class TensorColumns:
    """Gives every tensor of the run a number, and every piece of memory one of its own."""

    def __init__(self, *, stand_in: bool) -> None:
        self.stand_in = stand_in  # meta tensors stand in for tensors on the cpu
        self.specs: list[TensorSpec] = []
        self.spec_of: list[int] = []
        self.storage_of: list[int] = []
        self.num_storages = 0
        self.gradients: dict[int, int] = {}  # parameter -> what the backward pass left for it
        self._external: list[ExternalTensor] = []
        self._constants: list[int] = []  # those of the external ones that the code brought along
        self._spec_numbers: dict[tuple[Any, ...], int] = {}
        self._marked: list[Tensor] = []  # tensors that outlive the capture and must lose their mark
        self._external_storages: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self.spec_of)

    def number_of(self, tensor: Tensor) -> int:
        """The number of a tensor; one never seen before is a constant that the code brought along."""
        mark = getattr(tensor, _MARK, None)
        if mark is not None and mark[0] is self:
            return int(mark[1])
        return self.add_external(tensor, kind="constant", name="")

    def is_known(self, tensor: Tensor) -> bool:
        """Whether the tensor has a number already."""
        mark = getattr(tensor, _MARK, None)
        return mark is not None and mark[0] is self

    def add_external(self, tensor: Tensor, *, kind: str, name: str) -> int:
        """Give a number to a tensor that no recorded op made."""
        pointer = storage_pointer(tensor)
        storage = self._external_storages.get(pointer) if pointer else None
        if storage is None:
            storage = self.new_storage()
            if pointer and kind != "constant":
                self._external_storages[pointer] = storage
        number = self.add(tensor, storage)
        self._external.append(ExternalTensor(tensor=number, kind=kind, name=name))
        if kind == "constant":
            self._constants.append(number)
        self._marked.append(tensor)
        return number

    def add(self, tensor: Tensor, storage: int) -> int:
        """Give a new number to a tensor, whatever it had before."""
        number = len(self.spec_of)
        self.spec_of.append(self.spec_number(tensor))
        self.storage_of.append(storage)
        self.mark(tensor, number)
        return number

    def new_storage(self) -> int:
        """A number for memory not seen before."""
        self.num_storages += 1
        return self.num_storages - 1

    def mark(self, tensor: Tensor, number: int) -> None:
        """Let a tensor object stand for a number from now on."""
        setattr(tensor, _MARK, (self, number))

    def spec_number(self, tensor: Tensor) -> int:
        """The number of a tensor's description."""
        strided = tensor.layout is torch.strided
        geometry = (tensor.stride(), tensor.storage_offset()) if strided else tensor.layout
        key = (tensor.shape, tensor.dtype, geometry, tensor.device, tensor.requires_grad, type(tensor))
        number = self._spec_numbers.get(key)
        if number is None:
            number = self._spec_numbers[key] = len(self.specs)
            self.specs.append(spec_of(tensor, stand_in=self.stand_in))
        return number

    def extend(self, specs: list[int], storages: list[int], *, new_storages: int) -> None:
        """Append tensors that no object stands for yet."""
        self.spec_of.extend(specs)
        self.storage_of.extend(storages)
        self.num_storages += new_storages

    def constants(self, numbers: range) -> list[int]:
        """The tensors among these that code brought along."""
        first = bisect_left(self._constants, numbers.start)
        return self._constants[first : bisect_left(self._constants, numbers.stop)]

    def copy_constants(self, numbers: range, shift: int) -> None:
        """Let the copies of constants be constants, too."""
        for number in self.constants(numbers):
            self._external.append(ExternalTensor(tensor=number + shift, kind="constant", name=""))
            self._constants.append(number + shift)

    def describer(self, layer: int | None = None) -> Describer:
        """A describer that writes devices as this run does."""
        return Describer(stand_in=self.stand_in, layer=layer, spec=self.spec)

    def spec(self, tensor: Tensor) -> TensorSpec:
        """The description of a tensor; equal ones are one object."""
        return self.specs[self.spec_number(tensor)]

    def forget_marks(self) -> None:
        """Leave the tensors that outlive the capture as they were found."""
        for tensor in self._marked:
            with suppress(AttributeError):
                delattr(tensor, _MARK)
        self._marked.clear()

    def freeze(self) -> TensorTable:
        """The columns as a record, specs in the order of their first tensor."""
        order = {spec: position for position, spec in enumerate(dict.fromkeys(self.spec_of))}
        return TensorTable(
            specs=tuple(self.specs[spec] for spec in order),
            spec_of=tuple([order[spec] for spec in self.spec_of]),
            storage_of=tuple(self.storage_of),
            external=tuple(self._external),
            gradients=dict(self.gradients),
        )


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
        self.signature_of: list[int] = []
        self.modules: list[int] = []
        self.parents: list[int] = []
        self.inputs: list[tuple[int, ...]] = []
        self.outputs: list[tuple[int, ...]] = []
        self.first_ops: list[int] = []
        self.end_ops: list[int] = []
        self._numbers: dict[ModuleSignature, int] = {}

    def __len__(self) -> int:
        return len(self.modules)

    def begin(self, module: int, parent: int, first_op: int) -> int:
        """Open a row; what was passed and what came back is filled in when the call ends."""
        self.signature_of.append(-1)
        self.modules.append(module)
        self.parents.append(parent)
        self.inputs.append(())
        self.outputs.append(())
        self.first_ops.append(first_op)
        self.end_ops.append(first_op)
        return len(self.modules) - 1

    def number_signature(self, arguments: tuple[Argument, ...], output: Any) -> int:
        """The number of a signature, each distinct one kept once."""
        signature = ModuleSignature(arguments=arguments, output=output)
        number = self._numbers.get(signature)
        if number is None:
            number = self._numbers[signature] = len(self.signatures)
            self.signatures.append(signature)
        return number

    def freeze(self) -> ModuleCallTable:
        """The columns as a record."""
        return ModuleCallTable(
            signatures=tuple(self.signatures),
            signature_of=tuple(self.signature_of),
            modules=tuple(self.modules),
            parents=tuple(self.parents),
            inputs=tuple(self.inputs),
            outputs=tuple(self.outputs),
            first_ops=tuple(self.first_ops),
            end_ops=tuple(self.end_ops),
        )


def describe_arguments(
    module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], describer: Describer
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
def _parameter_names(forward: Callable[..., Any]) -> tuple[str, ...]:
    try:
        parameters = inspect.signature(forward).parameters.values()
    except (TypeError, ValueError):  # written in C, or with a signature of its own making
        return ()
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return tuple(parameter.name for parameter in parameters if parameter.kind in positional)[1:]
