"""Modules, and each call of a module."""

from collections.abc import Iterator

from torchstone.record.base import Record
from torchstone.record.value import Argument, Value


class Source(Record, frozen=True, kw_only=True):
    """Where a class is defined."""

    file: str
    first_line: int
    last_line: int


class Parameter(Record, frozen=True, kw_only=True):
    """A parameter or buffer as a module holds it; a tied one has the tensor number of its twin."""

    name: str
    tensor: int
    trainable: bool = False
    persistent: bool = True  # False: a buffer that is not in the state dict


class Module(Record, frozen=True, kw_only=True):
    """One module object; modules stand in pre-order, the root first."""

    path: str  # "" for the root
    class_name: str  # with its Python module
    parent: int = -1
    attributes: tuple[tuple[str, Value], ...] = ()  # scalars and short sequences that configure it
    parameters: tuple[Parameter, ...] = ()
    buffers: tuple[Parameter, ...] = ()
    other_paths: tuple[str, ...] = ()  # where else in the tree the same object hangs
    training: bool = False
    container: bool = False  # Sequential, ModuleList, ModuleDict: it only holds others


class ModuleSignature(Record, frozen=True, kw_only=True):
    """What a module was called with and what it gave, but for the values inside tensors."""

    arguments: tuple[Argument, ...]
    output: Value


class ModuleCall(Record, frozen=True, kw_only=True):
    """One call of one module, with the op calls first_op up to, not including, end_op inside it."""

    index: int
    module: int
    parent: int  # row of the calling module's call; -1 for the root
    signature: ModuleSignature
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    first_op: int
    end_op: int


class ModuleCallTable(Record, frozen=True, kw_only=True):
    """All module calls of a trace in the order they began, as columns; `table[i]` is call number i."""

    signatures: tuple[ModuleSignature, ...] = ()
    signature_of: tuple[int, ...] = ()
    modules: tuple[int, ...] = ()
    parents: tuple[int, ...] = ()
    inputs: tuple[tuple[int, ...], ...] = ()
    outputs: tuple[tuple[int, ...], ...] = ()
    first_ops: tuple[int, ...] = ()
    end_ops: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.modules)

    def __getitem__(self, index: int) -> ModuleCall:
        index = range(len(self))[index]  # counts from the end, too, and ends where the table ends
        return ModuleCall(
            index=index,
            module=self.modules[index],
            parent=self.parents[index],
            signature=self.signatures[self.signature_of[index]],
            inputs=self.inputs[index],
            outputs=self.outputs[index],
            first_op=self.first_ops[index],
            end_op=self.end_ops[index],
        )

    def __iter__(self) -> Iterator[ModuleCall]:
        return map(self.__getitem__, range(len(self)))
