"""What a backward pass does in place in a real run, and not while a dispatch mode looks on, as one does in a capture.

Where gradients meet in one tensor, autograd adds the second to the first in place, if nothing else refers to the first.
And some formulas for gradients write into zeros that they made. Under any dispatch mode torch calls the functional op
in both cases, which takes memory for one gradient more. A capture calls the op in place again.
"""

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.autograd import graph
from torch.utils._python_dispatch import _disable_current_modes

from torchstone.numerics.dispatch import KernelOp, KernelOpMode, OpArguments, OpKeywords

_ADD_IN_PLACE = torch.ops.aten.add_.Tensor
# By the name of an op that formulas in C++ call while a mode looks on: the op that they call otherwise.
_TWINS: dict[str, OpOverload] = {
    "aten.add.Tensor": _ADD_IN_PLACE,  # of two gradients
    "aten.scatter.src": torch.ops.aten.scatter_.src,
    "aten.scatter_add.default": torch.ops.aten.scatter_add_.default,
    "aten.masked_scatter.default": torch.ops.aten.masked_scatter_.default,
    "aten.index_put.default": torch.ops.aten.index_put_.default,
    "aten.put.default": torch.ops.aten.put_.default,
    "aten.index_fill.int_Tensor": torch.ops.aten.index_fill_.int_Tensor,
    "aten.index_add.default": torch.ops.aten.index_add_.default,
}
# The nodes whose formulas do so, into zeros that they make; others call these ops in a real run, too.
_WRITE_INTO_ZEROS = frozenset({
    "Sort", "Topk", "Max", "Min", "Median", "Nanmedian", "Kthvalue", "Mode", "Gather", "Cummax", "Cummin", "Take",
    "MaskedSelect", "Index", "UnsafeIndex", "IndexSelect", "Trace",
})  # fmt: skip
_BEGAN = "torchstone_began"
_ENGINE = graph._engine_run_backward.__code__  # the last line of Python before autograd's engine, which is in C++


_BY_VALUES = (
    "gradients of prod and cumprod have the formula for values that may be zero; where none is, a real run takes one "
    "with fewer ops and less memory"
)
_WORKSPACE = "what oneDNN keeps of an LSTM for the backward pass is not counted; --mode cpu counts it"


def notes_of_step(ops: Iterable[str], *, stand_in: bool) -> Iterator[str]:
    """What else is not as in a real run in a training step with these ops."""
    packets = {op.rpartition(".")[0] for op in ops}
    if not packets.isdisjoint(("aten.prod", "aten.cumprod")):
        yield _BY_VALUES
    if stand_in and "aten.mkldnn_rnn_layer" in packets:
        yield _WORKSPACE


def in_place_twin(name: str) -> OpOverload | None:
    """The op that autograd's own code may call in the place of one with this name when no mode looks on."""
    return _TWINS.get(name)


@dataclass(frozen=True, slots=True)
class RunningNode:
    """The autograd node that is running."""

    node: graph.Node
    tensors_before: int  # how many tensors there were when it called its first op

    @classmethod
    def now(cls, tensors_so_far: int) -> "RunningNode | None":
        """The node that calls an op; None outside of nodes."""
        node: graph.Node | None = torch._C._current_autograd_node()
        if node is None:
            return None
        task = torch._C._current_graph_task_id()  # a graph that is kept may be run through again
        notes: Any = node.metadata
        began: tuple[int, int] | None = notes.get(_BEGAN)
        if began is None or began[0] != task:
            began = notes[_BEGAN] = (task, tensors_so_far)
        return cls(node, began[1])

    def runs_in_place(self, twin: OpOverload, args: OpArguments, kwargs: OpKeywords, first: int) -> bool:
        """Whether a real run writes the result over the first argument, which has this number."""
        is_new = first >= self.tensors_before
        if torch.is_grad_enabled():
            return False
        if twin is not _ADD_IN_PLACE:
            return is_new and self.node.name().partition("Backward")[0] in _WRITE_INTO_ZEROS
        if len(args) != 2 or kwargs or (is_new and not self._gives_several_to_one()):  # noqa: PLR2004 - two gradients
            return False
        return _references(args) == references_alone() and all(map(_is_plain, args)) and _may_hold_sum(args[0])

    def _gives_several_to_one(self) -> bool:
        """Whether several gradients that the node makes are for one tensor, as those of `x * x`."""
        following = [one for one in self.node.next_functions if one[0] is not None]
        return len(set(following)) < len(following)


def is_called_by_engine(frame: FrameType | None) -> bool:
    """Whether autograd's engine called what this frame called; on its own threads there is no frame."""
    return frame is None or frame.f_code is _ENGINE


def _is_plain(tensor: Tensor) -> bool:
    return tensor.layout is torch.strided and not tensor.is_nested and not tensor._is_zerotensor()


def _may_hold_sum(tensor: Tensor) -> bool:
    """Whether each element has a place of its own in memory, and no place between them is unused."""
    place = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1 and stride != place:
            return False
        place *= size
    return True


def _references(args: OpArguments) -> tuple[int, int, int]:
    """How often the first of some arguments is referred to: in Python, in torch, and its memory."""
    tensor: Any = args[0]  # torch does not list its counts
    if tensor.layout is not torch.strided:
        return (0, 0, 0)
    memory = torch._C._storage_Use_Count(tensor.untyped_storage()._cdata)
    return sys.getrefcount(tensor), tensor._use_count(), memory


class _Meter(KernelOpMode):
    """Notes how often a gradient is referred to that only autograd has, when another one is added to it."""

    alone = (-1, -1, -1)

    def run_op(self, func: KernelOp, args: OpArguments, kwargs: OpKeywords) -> object:
        """Run an op, and look at what it was given."""
        if func is torch.ops.aten.add.Tensor:
            self.alone = _references(args)
        return func(*args, **kwargs)


@cache
def references_alone() -> tuple[int, int, int]:
    """What `_references` gives for a gradient that nothing else refers to: it depends on the version of torch.

    To be called before a run: there is no autograd where a mode receives an op.
    """
    meter = _Meter()
    x = torch.ones(1, requires_grad=True)
    with _disable_current_modes(), torch.enable_grad():
        base = x * 2
        y = torch.cat([base.sin(), base.cos()])
        with meter:
            torch.autograd.backward([y], [torch.ones(2)], inputs=[x])
    return meter.alone
