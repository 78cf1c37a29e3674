"""The backward pass: run from all outputs, each op credited to the module whose forward op it undoes."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from torchstone.capture.describe import Describer
from torchstone.capture.ops import OpRecorder

_OWNER = "torchstone_module_call"


def credit(inputs: Iterable[Tensor], outputs: Iterable[Tensor], owner: object) -> None:
    """Credit a module call with all autograd nodes between its inputs and its outputs that no inner call made."""
    before = {tensor.grad_fn for tensor in inputs}
    waiting = [tensor.grad_fn for tensor in outputs]
    while waiting:
        node = waiting.pop()
        if node is None or node in before or _OWNER in _notes_of(node):
            continue
        _notes_of(node)[_OWNER] = owner
        waiting.extend(following for following, _ in node.next_functions)


def credited() -> Any:
    """Who is credited with the autograd node that is running; None outside a backward pass and for foreign nodes."""
    node: Any = torch._C._current_autograd_node()
    return None if node is None else _notes_of(node).get(_OWNER)


def run_backward(output: Any) -> None:
    """Run the backward pass from all floating-point outputs, each with a gradient of ones."""
    describer = Describer()
    describer.describe(output)
    ends = [tensor for tensor in describer.tensors if tensor.requires_grad and tensor.is_floating_point()]
    if not ends:
        msg = "no output of the model depends on a trainable parameter"
        raise TypeError(msg)
    torch.autograd.backward(ends, [torch.ones_like(end) for end in ends])


class Backward:
    """Remembers which module call made which node of the autograd graph."""

    def __init__(self, recorder: OpRecorder) -> None:
        self._recorder = recorder

    @staticmethod
    def attribute(inputs: list[Tensor], outputs: list[Tensor], call: int) -> None:
        """Credit a call with all nodes between its inputs and its outputs that no inner call made."""
        credit(inputs, outputs, call)

    def run(self, output: Any) -> None:
        """Run the backward pass, each op credited to the module call it undoes."""
        self._recorder.owner_of_backward = self._current_call
        run_backward(output)

    @staticmethod
    def _current_call() -> int:
        owner = credited()
        return -1 if owner is None else int(owner)


def _notes_of(node: Any) -> dict[str, Any]:
    """What may be remembered at an autograd node."""
    notes: dict[str, Any] = node.metadata
    return notes
