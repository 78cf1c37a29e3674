"""Changes of a failing case, the smallest first, until one passes: the twin that tells what a failure depends on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from operator import getitem

import torch
from torch import Tensor, fx

from torchstone.backends.graphs import exported_graph
from torchstone.check.child.graph_parts import Arguments, all_values, is_call, part_of
from torchstone.check.child.graphs import chosen_parts, received
from torchstone.check.child.model import Payload, backend_for
from torchstone.check.child.repro import Case, case_of, resized, revalued, set_tensor, source_parts, tensors_of
from torchstone.foreign import foreign_code
from torchstone.numerics.dtypes import dtype_name
from torchstone.numerics.tensor_files import usual_stride

_MOST_SIZES = 3  # that are changed
_SMALLER, _LARGER = 1e-2, 1e2
_OTHER_DTYPES = {
    torch.float32: (torch.float64, torch.bfloat16), torch.bfloat16: (torch.float32,), torch.float16: (torch.float32,),
    torch.float64: (torch.float32,), torch.int64: (torch.int32,), torch.int32: (torch.int64,),
}  # fmt: skip

Made = tuple[fx.GraphModule, Arguments, str]  # a module, its arguments, and how a script makes these


@dataclass(frozen=True)
class Change:
    """One change, in words, and the case with it."""

    words: str
    make: Callable[[], Made]


def find_twin(payload: Payload) -> dict[str, object]:
    """A task: the first change with which the case passes, with the parts of its script; all tries in this process."""
    case = case_of(payload)
    fails_with: list[str] = []
    for change in _changes(case, payload):
        made = _made(change)
        if made is None:
            continue
        if case.tried(*made[:2])["outcome"] == "passed":
            return {"change": change.words, "fails_with": fails_with, **source_parts(*made, payload)}
        fails_with.append(change.words)
    return {"change": "", "fails_with": fails_with}


def changed_source(payload: Payload) -> dict[str, object]:
    """A task: the parts of the script with change number `change`, which is not tried: it may end its process."""
    change = next(islice(_changes(case_of(payload), payload), payload["change"], None), None)
    made = None if change is None else _made(change)
    words = "" if change is None else change.words
    return {"change": words, **({"source": ""} if made is None else source_parts(*made, payload))}


def _made(change: Change) -> Made | None:
    """The case with a change; None where eager does not take it, or its result would tell nothing."""
    with foreign_code():  # shapes that do not fit together and ops without a kernel raise anything
        module, args, kind = change.make()
        module, args = revalued(module, args, kind)
        return (module, args, kind) if _tells_something(module, args) else None
    return None


def _tells_something(module: fx.GraphModule, args: Arguments) -> bool:
    """Whether a wrong result could be seen at all: some output is neither empty nor zero."""
    with torch.no_grad():
        given = module(*(one.clone() if isinstance(one, Tensor) else one for one in args))
    return any(isinstance(one, Tensor) and bool((one != 0).any()) for one in given)


def _changes(case: Case, payload: Payload) -> Iterator[Change]:
    """From the smallest change to the largest: layout, values, sizes, number format, fewer ops, other ops."""
    sizes, kind = dict(payload["script_sizes"]), payload["script_values"]
    module, args = case.at(sizes, kind)
    tensors = [one for one in (*args, *tensors_of(module).values()) if isinstance(one, Tensor)]
    if any(one.stride() != usual_stride(one.shape) for one in tensors):
        yield Change("with contiguous tensors", partial(_mapped, module, args, torch.Tensor.contiguous, kind))
    yield from _value_changes(case, sizes, kind)
    for size in sorted({size for tensor in tensors for size in tensor.shape if size})[:_MOST_SIZES]:
        for other in dict.fromkeys((size + 1, size - 1, 1, 2 * size)):
            if other not in (0, size):
                make = partial(_with_size, module, args, (size, other), kind)
                yield Change(f"with {other} in place of {size} in its shapes", make)
    for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
        for wanted in _OTHER_DTYPES.get(dtype, ()):
            make = partial(_mapped, module, args, partial(_cast, dtype=dtype, wanted=wanted), kind)
            yield Change(f"in {dtype_name(wanted)} in place of {dtype_name(dtype)}", make)
    yield from _fewer_ops(payload, sizes, kind)
    yield Change("decomposed into simpler ops", partial(_decomposed, module, args, kind))


def _value_changes(case: Case, sizes: dict[int, int], kind: str) -> Iterator[Change]:
    module, args = case.at(sizes, kind)
    floats = [one for one in (*args, *tensors_of(module).values()) if _is_float(one)]
    if not floats:
        return
    if not all(bool(one.isfinite().all()) for one in floats):
        make = partial(_mapped, module, args, _finite, "recorded")
        yield Change("without NaN and infinity in its inputs", make)
    if kind == "recorded":
        yield Change("with random values", lambda: (*case.at(sizes, "random"), "random"))
    for factor, words in ((_SMALLER, "100 times smaller"), (_LARGER, "100 times larger"), (None, "not negative")):
        yield Change(f"with inputs {words}", partial(_scaled, module, args, factor))


def _scaled(module: fx.GraphModule, args: Arguments, factor: float | None) -> Made:
    """The inputs, not the weights, times a factor; without one, their absolute values."""
    changed = (one if not _is_float(one) else one.abs() if factor is None else one * factor for one in args)
    return module, tuple(changed), "recorded"


def _finite(tensor: Tensor) -> Tensor:
    return tensor.nan_to_num(0.0, 1.0, -1.0) if _is_float(tensor) else tensor


def _cast(tensor: Tensor, *, dtype: torch.dtype, wanted: torch.dtype) -> Tensor:
    return tensor.to(wanted) if tensor.dtype == dtype else tensor


def _fewer_ops(payload: Payload, sizes: dict[int, int], kind: str) -> Iterator[Change]:
    """Of ops that fail together, all but one; what the others read of it is computed by eager."""
    chosen = payload["chosen_steps"]
    if len(chosen) < 2:  # noqa: PLR2004 - nothing would be left
        return
    _, graphs = received(payload)
    backend = backend_for(payload["backend"])
    for left, op in reversed(list(zip(chosen, payload["ops"], strict=True))):
        rest = chosen_parts(graphs, [place for place in chosen if place != left])
        if len(rest) == 1:
            _, part, inputs = rest[0]
            made = Case(part.module, inputs, backend, payload).at(sizes, kind)
            yield Change(f"with {op} computed by eager", partial(_same, *made, kind))


def _same(module: fx.GraphModule, args: Arguments, kind: str) -> Made:
    return module, args, kind


def _decomposed(module: fx.GraphModule, args: Arguments, kind: str) -> Made:
    graph = exported_graph(module, args, {}, decomposes=True)
    if sum(map(_is_op, module.graph.nodes)) >= sum(map(_is_op, graph.module.graph.nodes)):
        msg = "there is no simpler form"
        raise ValueError(msg)
    nodes = [node for node in graph.module.graph.nodes if is_call(node)]
    part = part_of(graph.module, nodes, all_values(graph))  # its weights by plain names, as a script has them
    taken = [node for node in graph.module.graph.nodes if node.op == "placeholder"]
    given = dict(zip(taken, graph.inputs, strict=True))
    return part.module, tuple(given[node] for node in part.takes), kind


def _is_op(node: fx.Node) -> bool:
    return node.op.startswith("call_") and node.target is not getitem


def _is_float(value: object) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()


def _mapped(module: fx.GraphModule, args: Arguments, change: Callable[[Tensor], Tensor], kind: str) -> Made:
    """Weights and inputs, each changed."""
    copy = resized(module, {})
    for name, tensor in tensors_of(copy).items():
        set_tensor(copy, name, change(tensor.detach()), tensor)
    return copy, tuple(change(one) if isinstance(one, Tensor) else one for one in args), kind


def _with_size(module: fx.GraphModule, args: Arguments, sizes: tuple[int, int], kind: str) -> Made:
    """Every dimension of one size with another: values repeat, or the last ones go."""
    size, other = sizes

    def change(tensor: Tensor) -> Tensor:
        for dimension, here in enumerate(tensor.shape):
            if here == size:
                tensor = tensor.index_select(dimension, torch.arange(other) % size)
        return tensor

    copy, changed, _ = _mapped(module, args, change, kind)
    return resized(copy, {size: other}), changed, kind
