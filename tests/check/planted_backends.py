"""Backends of torch.compile with one planted fault each: they rewrite the graph they receive, so the truth is known."""

import os
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn

from torchstone.backends.eager import Eager
from torchstone.backends.protocol import Run, Unsupported

Decide = Callable[[fx.Node], bool]


def name_of(node: fx.Node) -> str:
    return node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")


def larger(result: Tensor) -> Tensor:
    return result * 1.5


class Rewrites(Eager):
    """Passes every graph of dynamo through `change`."""

    def compile(self, module: nn.Module, args: Any, kwargs: Any) -> Run:  # noqa: ARG002 - the protocol
        run = torch.compile(module, backend=self.receive, dynamic=False)

        def call(*args: Any, **kwargs: Any) -> Any:
            with torch.no_grad():
                return run(*args, **kwargs)

        return call

    def reset(self) -> None:
        torch._dynamo.reset()

    def receive(self, graph: fx.GraphModule, _example: Sequence[object]) -> Callable[..., Any]:
        for node in list(graph.graph.nodes):
            if node.op.startswith("call_") and self.is_bad(node):
                with graph.graph.inserting_after(node):
                    bad = graph.graph.call_function(self.act, (node,))
                node.replace_all_uses_with(bad, delete_user_cb=lambda user, bad=bad: user is not bad)
        graph.recompile()
        return graph.forward

    def is_bad(self, node: fx.Node) -> bool:
        raise NotImplementedError

    def act(self, result: Tensor) -> Tensor:
        return larger(result)


class BadLinear(Rewrites):
    """linear is wrong."""

    def is_bad(self, node: fx.Node) -> bool:
        return name_of(node) == "linear"


class BadAddAfterLinear(Rewrites):
    """An add is wrong where a linear feeds it, and nothing else."""

    def is_bad(self, node: fx.Node) -> bool:
        return name_of(node) == "add" and any(
            name_of(before) == "linear" and len(before.users) == 1 for before in node.all_input_nodes
        )


class WritesToInputs(Rewrites):
    """Right values, and the tensors that it is given are changed afterwards."""

    def receive(self, graph: fx.GraphModule, _example: Sequence[object]) -> Callable[..., Any]:
        def run(*inputs: Any) -> Any:
            outputs = graph.forward(*inputs)
            for one in inputs:
                if isinstance(one, Tensor) and not isinstance(one, nn.Parameter):
                    one.mul_(0.5)
            return outputs

        return run


class _WrongGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:  # noqa: ARG004 - torch's signature
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # noqa: ARG004 - torch's signature
        return gradient * 1.5


class BadGradientOfGelu(Rewrites):
    """The forward pass is right; the gradient of gelu is not."""

    gradients = True

    def compile(self, module: nn.Module, args: Any, kwargs: Any) -> Run:  # noqa: ARG002 - the protocol
        return torch.compile(module, backend=self.receive, dynamic=False)

    def is_bad(self, node: fx.Node) -> bool:
        return name_of(node) == "gelu"

    def act(self, result: Tensor) -> Tensor:
        return _WrongGradient.apply(result)


class BadTriple(Rewrites):
    """A linear is wrong two steps after a linear, with a gelu between."""

    def is_bad(self, node: fx.Node) -> bool:
        return name_of(node) == "linear" and any(
            name_of(middle) == "gelu" and any(name_of(first) == "linear" for first in middle.all_input_nodes)
            for middle in node.all_input_nodes
        )


class BadLargeGelu(Rewrites):
    """gelu is wrong for values above 100."""

    def is_bad(self, node: fx.Node) -> bool:
        return name_of(node) == "gelu"

    def act(self, result: Tensor) -> Tensor:
        return larger(result) if float(result.max()) > 100 else result


class BadGeluAndTanh(Rewrites):
    """Two ops are wrong."""

    def is_bad(self, node: fx.Node) -> bool:
        return name_of(node) in ("gelu", "tanh")


class RaisesAtTanh(Rewrites):
    """Cannot lower tanh, and does not name it."""

    def is_bad(self, node: fx.Node) -> bool:
        if name_of(node) == "tanh":
            msg = "scheduling failed"
            raise RuntimeError(msg)
        return False


class WrongWhenLarge(Rewrites):
    """Every graph of more than five calls is wrong at its end: no part of it is."""

    def receive(self, graph: fx.GraphModule, example: Sequence[object]) -> Callable[..., Any]:
        calls = [node for node in graph.graph.nodes if node.op.startswith("call_")]
        self._last = calls[-1] if len(calls) > 5 else None
        return super().receive(graph, example)

    def is_bad(self, node: fx.Node) -> bool:
        return node is self._last


class NoComplexOutputs(Eager):
    """A backend of torch.export that takes complex numbers inside, and none at its boundary."""

    def compile(self, module: nn.Module, args: Any, kwargs: Any) -> Run:
        from torchstone.backends.export import exported_program

        exported = exported_program(module, args, kwargs)
        graph = exported.program.module()

        def run(tensors: Sequence[Tensor]) -> Sequence[Tensor]:
            given = graph(*tensors)
            if any(tensor.is_complex() for tensor in (*tensors, *given)):
                msg = "complex64 is no type of a port"
                raise Unsupported(msg)
            return list(given)

        return exported.nested(run)


class Shaky(Rewrites):
    """gelu gives other values in every call."""

    def is_bad(self, node: fx.Node) -> bool:
        return name_of(node) == "gelu"

    def act(self, result: Tensor) -> Tensor:
        return result * (1 + int.from_bytes(os.urandom(1), "big") / 256)


class WrongWhenCalledAgain(Shaky):
    """gelu is right in the first call of what was compiled, and wrong in the same way ever after."""

    def receive(self, graph: fx.GraphModule, _example: Sequence[object]) -> Callable[..., Any]:
        self.calls = 0
        run = super().receive(graph, _example)

        def counted(*args: Any) -> Any:
            self.calls += 1
            return run(*args)

        return counted

    def act(self, result: Tensor) -> Tensor:
        return result if self.calls == 1 else larger(result)


class OtherWhenStartedAgain(Eager):
    """Every second compilation of the whole model is wrong: as one process and the next would be."""

    def compile(self, module: nn.Module, args: Any, kwargs: Any) -> Run:  # noqa: ARG002 - the protocol
        weights = sum(parameter.dim() > 1 for parameter in module.parameters())
        _compiled.append(weights)
        bad = weights == max(_compiled) and _compiled.count(weights) % 2
        return (lambda *args, **kwargs: larger(module(*args, **kwargs))) if bad else module


_compiled: list[int] = []


class BadAtOddWidth(Rewrites):
    """linear is wrong where its result has an odd width."""

    def is_bad(self, node: fx.Node) -> bool:
        return name_of(node) == "linear"

    def act(self, result: Tensor) -> Tensor:
        return larger(result) if result.shape[-1] % 2 else result


class BadArange(Rewrites):
    """arange, which takes no tensor, is wrong."""

    def is_bad(self, node: fx.Node) -> bool:
        return name_of(node) == "arange"

    def act(self, result: Tensor) -> Tensor:
        return result + 1


class LacksFour(Eager):
    """A compiler of exported programs that has no rule for some ops, and breaks at another where it has all rules."""

    lacks = ("aten.empty_like.default", "aten.arange.default", "aten.histc.default")

    def compile(self, module: nn.Module, args: Any, kwargs: Any) -> Run:
        from torchstone.backends.export import exported_program

        exported = exported_program(module, args, kwargs)
        graph = exported.program.module()
        called = [str(node.target) for node in exported.program.graph.nodes if node.op == "call_function"]
        missing = sorted({name for name in called if name in self.lacks})
        if missing:
            msg = f"no conversion rule for {', '.join(missing)}"
            raise Unsupported(msg, ops=tuple(missing))
        if "aten.tanh.default" in called:
            msg = "shape inference failed"
            raise RuntimeError(msg)
        return exported.nested(lambda tensors: list(graph(*tensors)))
