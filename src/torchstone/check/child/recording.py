"""Run the model once more on real tensors and record arguments, outputs, and tensors that ops read.

What to keep was planned from the trace, by the numbers of module calls and op calls. This run counts both in the way
the capture did. Where it meets another op than the trace has, it stops: values in the wrong places are worse than none.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import _disable_current_modes

from torchstone.backends.interception import (
    CallModule,
    KernelOp,
    KernelOpMode,
    OpArguments,
    OpKeywords,
    intercepted,
    op_name,
)
from torchstone.check.child.model import LoadedModel, Payload, loaded_model
from torchstone.check.child.values import UnserializableError, Writer, copied
from torchstone.numerics.pytree import named_tensors
from torchstone.numerics.tensor_files import TensorFileError, write_tensors
from torchstone.numerics.written import written_put_back

RANDOM_STATE = "random_state"


class TraceMismatchError(Exception):
    """The model did not do again what it did for the trace."""


def record_task(payload: Payload) -> dict[str, dict[str, str]]:
    """A task: keep the values of the model that this process holds."""
    return keep(
        loaded_model(), json.loads(Path(payload["wanted"]).read_text(encoding="utf-8")), Path(payload["folder"])
    )


def keep(loaded: LoadedModel, wanted: dict[str, Any], folder: Path) -> dict[str, dict[str, str]]:
    """Run a model and write a file for each wanted module call; returns calls with unserializable arguments."""
    recorder = _Recorder(loaded.model, wanted, folder)
    args, kwargs = copy.deepcopy((loaded.args, loaded.kwargs))
    python_state = random.getstate()
    with (
        torch.random.fork_rng(devices=[]),
        torch.no_grad(),
        written_put_back((args, kwargs)),
        recorder.intercepting(),
        recorder.ops,
    ):
        loaded.model(*args, **kwargs)
    random.setstate(python_state)
    if recorder.ops.count != len(wanted["ops"]):
        msg = f"the model called {recorder.ops.count} ops, but {len(wanted['ops'])} when it was captured"
        raise TraceMismatchError(msg)
    weights = {name: tensor_at(loaded.model, path) for name, path in wanted["weights"].items()}
    if weights:
        write_tensors(folder / "weights.safetensors", weights)
    return {"unwritten": recorder.unwritten}


class _Recorder:
    """Counts module calls and writes down the wanted ones."""

    def __init__(self, model: nn.Module, wanted: dict[str, Any], folder: Path) -> None:
        self._modules = list(model.modules())
        self._known = {id(module): path for path, module in model.named_modules()}
        self.unwritten: dict[str, str] = {}
        self.ops = _OpCounter(wanted)
        self._rows = {int(row): needs for row, needs in wanted["rows"].items()}
        self._folder = folder
        self._count = 0
        self._really_call: CallModule

    @contextmanager
    def intercepting(self) -> Iterator[None]:
        """See the calls of the model's modules while open."""
        with intercepted(self._modules, self._call) as self._really_call:
            yield

    def _call(self, module: nn.Module, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
        row, self._count = self._count, self._count + 1
        if row not in self._rows:
            return self._really_call(module, args, kwargs)
        with _disable_current_modes():
            document, tensors = self._arguments(row, args, kwargs)
        result = self._really_call(module, args, kwargs)
        with _disable_current_modes():
            outputs = dict(named_tensors(result))
            document["outputs"] = list(outputs)
            tensors |= {f"out.{place}": copied(value) for place, value in enumerate(outputs.values())}
            self._write(row, document, tensors | self.ops.recorded.pop(row, {}))
        return result

    def _arguments(
        self, row: int, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> tuple[dict[str, Any], dict[str, Tensor]]:
        writer = Writer("arg", self._known)
        state = {RANDOM_STATE: torch.get_rng_state()} if self._rows[row].get("random") else {}
        try:
            return {"args": writer.write(args), "kwargs": writer.write(kwargs)}, writer.tensors | state
        except UnserializableError as error:
            self.unwritten[str(row)] = str(error)
            return {}, state

    def _write(self, row: int, document: dict[str, object], tensors: dict[str, Tensor]) -> None:
        path = self._folder / f"call_{row:05}.safetensors"
        try:
            write_tensors(path, tensors)
        except TensorFileError as error:
            self.unwritten[str(row)] = str(error)
            write_tensors(path, {name: value for name, value in tensors.items() if _is_dense(value)})
        path.with_suffix(".json").write_text(json.dumps(document), encoding="utf-8")


class _OpCounter(KernelOpMode):
    """Counts op calls and copies the wanted tensors before the op that reads them runs."""

    def __init__(self, wanted: dict[str, Any]) -> None:
        super().__init__()
        self.count = 0
        self.recorded: dict[int, dict[str, Tensor]] = {}
        self._names: list[str] = wanted["ops"]
        self._wanted = {int(op): places for op, places in wanted["tensors"].items()}

    def run_op(self, func: KernelOp, args: OpArguments, kwargs: OpKeywords) -> object:
        """Count an op, and run it."""
        self._meet(func, args, kwargs)
        return func(*args, **kwargs)

    def _meet(self, func: KernelOp, args: OpArguments, kwargs: OpKeywords) -> None:
        name = op_name(func)
        expected = self._names[self.count] if self.count < len(self._names) else "nothing"
        if name != expected:
            msg = f"op call {self.count} is {name}, but {expected} when the model was captured"
            raise TraceMismatchError(msg)
        places = self._wanted.get(self.count)
        self.count += 1
        if places:
            tensors = list(_tensors_in((args, kwargs)))
            for position, row, tensor_name in places:
                self.recorded.setdefault(row, {})[tensor_name] = copied(tensors[position])


def _tensors_in(value: object) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors_in(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _tensors_in(item)


def tensor_at(model: nn.Module, path: str) -> Tensor:
    """A parameter or buffer by its path."""
    owner, _, name = path.rpartition(".")
    found = getattr(model.get_submodule(owner), name)
    assert isinstance(found, Tensor)  # noqa: S101 - the trace has it from the same model
    return found


def _is_dense(tensor: Tensor) -> bool:
    return tensor.layout == torch.strided and not tensor.is_quantized and not tensor.is_meta
