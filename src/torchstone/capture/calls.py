"""Module calls as they happen: who calls whom, with what, and which op calls lie inside."""

import inspect
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from torch import nn

from torchstone.capture.describe import Describer
from torchstone.record.module import ModuleCallTable, ModuleSignature
from torchstone.record.value import Absent, Argument

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
