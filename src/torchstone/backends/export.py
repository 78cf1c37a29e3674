"""A module with nested inputs and outputs -> a torch.export program over plain tensors, for backends that read it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from torchstone.backends.failures import ErrorClassifier, compiling, unclassified
from torchstone.backends.protocol import Args, CompileFailed, Kwargs, Run, first_line
from torchstone.numerics.pytree import FlatModule, flatten, unflatten


@dataclass(frozen=True)
class Exported:
    """A program over plain tensors, and how to nest what it takes and gives."""

    program: ExportedProgram
    example: tuple[Tensor, ...]
    outputs: object  # what numerics.pytree.unflatten takes

    def nested(self, run: Callable[[Sequence[Tensor]], Sequence[Tensor]]) -> Run:
        """A function over plain tensors as one over the module's own arguments and outputs."""

        def call(*args: object, **kwargs: object) -> object:
            tensors, _ = flatten((args, kwargs))
            with torch.no_grad():
                return unflatten(self.outputs, list(run(tensors)))

        return call


@cache
def import_exporter() -> None:
    """Make torch.export import what it imports when it is first used; a fork then has it."""
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.export.export(nn.Identity(), (torch.zeros(1),), strict=False).run_decompositions()


def exported_program(module: nn.Module, args: Args, kwargs: Kwargs) -> Exported:
    """Export a module; what torch.export itself cannot do is a failure to compile."""
    flat = FlatModule(module, args, kwargs)
    example = tuple(flat.example)
    with converting(lambda error: CompileFailed(f"torch.export cannot take it: {first_line(error)}")):
        program = torch.export.export(flat, example, strict=False)
    return Exported(program, example, flat.outputs)


@contextmanager
def converting(classify: ErrorClassifier = unclassified) -> Iterator[None]:
    """Around whatever turns a module or an exported program into another form: failures are classified.

    Gradients are off: a weight that wants them makes torch decompose some ops in another way than the model ran them,
    attention above all. Warnings are dropped: exporters warn about their own internals.
    """
    with torch.no_grad(), warnings.catch_warnings(), compiling(classify):
        warnings.simplefilter("ignore")
        yield
