"""The graph that a backend receives for a module: what dynamo or torch.export hands over, with its inputs.

A backend may hand its graphs over itself, by a method `received_graphs(module, args, kwargs)` that returns
`ReceivedGraph` records. For any other the way in is observed: whether its `compile` comes to torch.compile or to
torch.export. A backend that does neither runs the module's own code, and has no graph.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn

from torchstone.backends.protocol import Args, Backend, Kwargs
from torchstone.foreign import foreign_code

DYNAMO, EXPORT = "dynamo", "export"
_BUILT_IN = {"AotEager": DYNAMO, "Inductor": DYNAMO, "OnnxRuntime": EXPORT, "OpenVino": EXPORT, "StableHlo": EXPORT,
             "Iree": EXPORT, "Eager": "", "Faulty": "", "Xla": "", "TT": DYNAMO, "Command": EXPORT}  # fmt: skip


@dataclass(frozen=True)
class ReceivedGraph:
    """A graph of calls over plain tensors, its weights as attributes; it returns a tuple of tensors."""

    module: fx.GraphModule
    inputs: tuple[object, ...]


@dataclass(frozen=True)
class HandOver:
    """The graphs that one call of a module comes to; several where dynamo breaks it."""

    kind: str  # dynamo, export, or "own" for graphs that the backend handed over itself
    graphs: tuple[ReceivedGraph, ...]


class _Seen(BaseException):
    """Ends an observed compilation; no `except Exception` of a backend may swallow it."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.kind = kind


def hand_over(backend: Backend, module: nn.Module, args: Args, kwargs: Kwargs, kind: str = "") -> HandOver | None:
    """The graphs that a backend receives for a call, in a way that may be known; None where it runs the code."""
    own = getattr(backend, "received_graphs", None)
    if own is not None:
        return HandOver("own", tuple(own(module, args, kwargs)))
    kind = kind or kind_of(backend, module, args, kwargs)
    if kind == DYNAMO:
        return HandOver(kind, tuple(dynamo_graphs(module, args, kwargs)))
    return HandOver(kind, (exported_graph(module, args, kwargs),)) if kind == EXPORT else None


def kind_of(backend: Backend, module: nn.Module, args: Args, kwargs: Kwargs) -> str:
    """How a backend gets its graph: dynamo, export, or "" for the code itself."""
    home = type(backend)
    if home.__module__.startswith("torchstone.backends.") and home.__name__ in _BUILT_IN:
        return _BUILT_IN[home.__name__]
    try:
        # a backend that refuses before it has a graph is one without a graph
        with foreign_code(), _observed(), torch.no_grad():
            run = backend.compile(module, args, kwargs)
            if not home.__module__.startswith("torchstone.backends."):
                run(*args, **kwargs)
    except _Seen as seen:
        return seen.kind
    finally:
        backend.reset()
    return ""


def warm_up_tracing(backend: Backend) -> None:
    """Let dynamo or the exporter import what they import when first used: a fork then has it.

    Judged by the sources of the backend: nothing of it may run before it is asked to.
    """
    home = type(backend)
    try:
        text = "".join(inspect.getsource(one) for one in home.__mro__[:-1])
    except (OSError, TypeError):  # no sources
        return
    if "torch.compile" in text or _BUILT_IN.get(home.__name__) == DYNAMO:
        dynamo_graphs(nn.Linear(1, 1), (torch.zeros(1, 1),), {})
    if "torch.export" in text or "exported_program" in text:
        from torchstone.backends.export import import_exporter

        import_exporter()


@contextmanager
def _observed() -> Iterator[None]:
    """torch.compile and torch.export end in `_Seen`: nothing of the backend itself runs after them."""
    import torch._dynamo
    import torch.export

    def seen(kind: str) -> Any:
        def end(*_args: object, **_kwargs: object) -> Any:
            raise _Seen(kind)

        return end

    homes = [(torch, "compile", DYNAMO), (torch._dynamo, "optimize", DYNAMO), (torch.export, "export", EXPORT)]
    kept = [(home, name, getattr(home, name)) for home, name, _ in homes]
    try:
        for home, name, kind in homes:
            setattr(home, name, seen(kind))
        yield
    finally:
        for home, name, original in kept:
            setattr(home, name, original)


def dynamo_graphs(module: nn.Module, args: Args, kwargs: Kwargs) -> list[ReceivedGraph]:
    """The graphs that torch.compile hands to a backend for one call, in the order in which they first run."""
    import torch._dynamo

    found: list[ReceivedGraph] = []
    weights = {id(tensor) for tensor in (*module.parameters(), *module.buffers())}

    def keep(graph: fx.GraphModule, _example: Sequence[object]) -> Any:
        called: list[bool] = []

        def run(*inputs: object) -> object:
            if not called:
                called.append(True)
                found.append(_with_own_weights(graph, inputs, weights))
            return graph.forward(*inputs)

        return run

    torch._dynamo.reset()
    try:
        with torch.no_grad():
            torch.compile(module, backend=keep, dynamic=False)(*args, **kwargs)
    finally:
        torch._dynamo.reset()
    return found


def _with_own_weights(graph: fx.GraphModule, inputs: Sequence[object], weights: set[int]) -> ReceivedGraph:
    """Dynamo gives weights as inputs; as attributes they are again what they are in the module."""
    root = nn.Module()
    for name, inner in graph.named_children():
        root.add_module(name, inner)
    for name, tensor in (*graph.named_parameters(recurse=False), *graph.named_buffers(recurse=False)):
        setattr(root, name, tensor if isinstance(tensor, nn.Parameter) else nn.Buffer(tensor))
    copy = fx.Graph()
    nodes: dict[fx.Node, Any] = {}
    given = iter(inputs)
    taken: list[object] = []
    for node in graph.graph.nodes:
        if node.op != "placeholder":
            nodes[node] = copy.node_copy(node, nodes.__getitem__)
            _keep_plain_attribute(graph, root, node)
            continue
        value = next(given)
        if isinstance(value, Tensor) and id(value) in weights:
            name = f"weight_{node.name.strip('_')[-60:]}"
            setattr(root, name, value if isinstance(value, nn.Parameter) else nn.Buffer(value))
            nodes[node] = copy.get_attr(name)
        else:
            nodes[node] = copy.node_copy(node, nodes.__getitem__)
            taken.append(value.detach().clone() if isinstance(value, Tensor) else value)
    return ReceivedGraph(fx.GraphModule(root, copy), tuple(taken))


def _keep_plain_attribute(graph: fx.GraphModule, root: nn.Module, node: fx.Node) -> None:
    """Tensors and objects that are neither parameters nor modules are plain attributes of a graph."""
    if node.op == "get_attr" and "." not in str(node.target) and not hasattr(root, str(node.target)):
        value = getattr(graph, str(node.target))
        setattr(root, str(node.target), nn.Buffer(value) if isinstance(value, Tensor) else value)


def exported_graph(module: nn.Module, args: Args, kwargs: Kwargs, *, decomposes: bool = False) -> ReceivedGraph:
    """The graph of ATen ops that torch.export makes of a module, with its weights as attributes."""
    from torchstone.backends.export import exported_program

    exported = exported_program(module, args, kwargs)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        program = exported.program.run_decompositions() if decomposes else exported.program
        graph = program.module(check_guards=False)
    assert isinstance(graph, fx.GraphModule)  # noqa: S101 - torch.export says so
    plain = fx.GraphModule(graph, fx.Graph())
    nodes: dict[fx.Node, fx.Node] = {}
    for node in graph.graph.nodes:  # without the nesting of arguments that the exporter's code generator adds
        nodes[node] = plain.graph.node_copy(node, nodes.__getitem__)
        _keep_attribute_at(graph, plain, node)
    plain.recompile()
    return ReceivedGraph(plain, tuple(tensor.detach().clone() for tensor in exported.example))


def _keep_attribute_at(graph: nn.Module, plain: nn.Module, node: fx.Node) -> None:
    """What a node reads from the module, under the same path."""
    if node.op not in ("get_attr", "call_module"):
        return
    owner, target = graph, plain
    *path, name = str(node.target).split(".")
    for part in path:
        owner = getattr(owner, part)
        if not hasattr(target, part):
            target.add_module(part, nn.Module())
        target = getattr(target, part)
    if not hasattr(target, name):
        value = getattr(owner, name)
        setattr(target, name, nn.Buffer(value) if type(value) is Tensor else value)
