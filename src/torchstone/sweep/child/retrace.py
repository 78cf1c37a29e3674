"""What a vector really runs, recorded again and compared with the trace. Needs torch alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from torchstone.backends.program import find_op, program_module, read_value
from torchstone.backends.program_format import tensor_names_in
from torchstone.foreign import foreign_code
from torchstone.numerics.dtypes import dtype_name
from torchstone.sweep.child.answers import first_line
from torchstone.sweep.child.inputs import make_inputs, offset_of
from torchstone.sweep.child.program import program_for

_EXACT = ("shape", "dtype", "stride", "offset")


_RESULT: dict[str, object] = {"result": "of an earlier step"}  # of a chain: what it is like follows from the inputs


class _Watch(TorchDispatchMode):
    """Keeps the arguments of every call of some ops, under the names of their schemas."""

    def __init__(self, ops: list[object]) -> None:
        super().__init__()
        self.calls: list[tuple[object, dict[str, Any]]] = []
        self.others: list[str] = []
        self._ops = ops

    def __torch_dispatch__(self, func: Any, types: object, args: Any = (), kwargs: Any = None) -> object:
        """Torch's way in."""
        kwargs = kwargs or {}
        if func in self._ops:
            self.calls.append((func, _described_call(func, args, kwargs)))
        else:
            self.others.append(str(func))
        return func(*args, **kwargs)


def retrace(payload: Mapping[str, Any]) -> dict[str, object]:
    """Run a vector eagerly and compare each call of its ops with the traced one: match, diff or missing."""
    ops: list[object] = [find_op(step["op"]) for step in payload["steps"]]
    inputs = make_inputs(payload["inputs"], seed=int(payload.get("seed", 0)))
    with foreign_code() as ran:  # whatever eager PyTorch says is the answer
        module = program_module(program_for(payload))
        with torch.no_grad(), _Watch(ops) as watch:
            module(*inputs)
    if ran.error is not None:
        return {"result": "not told", "differences": [first_line(ran.error)], "incidental": 0}
    names = {about["name"]: _traced(about) for about in payload["inputs"]}
    taken = (name for step in payload["steps"] for one in step["arguments"].values() for name in tensor_names_in(one))
    names |= {name: _RESULT for name in taken if name not in names}
    found: list[str] = []
    for op, step in zip(ops, payload["steps"], strict=True):
        calls = [call for called, call in watch.calls if called is op]
        if not calls:
            parts = ", ".join(dict.fromkeys(watch.others)) or "no op at all"
            return {"result": "missing", "differences": [f"it runs {parts} instead"], "incidental": len(watch.others)}
        wanted = {name: _plain(read_value(value, names)) for name, value in step["arguments"].items()}
        differences = [_differences(wanted, call) for call in calls]
        best: list[str] = min(differences, key=len)
        found += best
    return {"result": "diff" if found else "match", "differences": found, "incidental": len(watch.others)}


def _traced(about: Mapping[str, Any]) -> dict[str, object]:
    return {
        "shape": list(about["shape"]),
        "dtype": about["dtype"],
        "stride": list(about["stride"]),
        "offset": offset_of(about),
    }


def _described_call(func: Any, args: tuple[object, ...], kwargs: Mapping[str, Any]) -> dict[str, object]:
    described = {}
    for position, argument in enumerate(func._schema.arguments):
        value = args[position] if position < len(args) else kwargs.get(argument.name, argument.default_value)
        described[argument.name] = _plain(value)
    return described


def _plain(value: object) -> Any:
    if isinstance(value, Tensor):
        return {
            "shape": list(value.shape),
            "dtype": dtype_name(value.dtype),
            "stride": list(value.stride()),
            "offset": value.storage_offset(),
        }
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return value if isinstance(value, bool | int | float | str | dict | None) else str(value)


def _differences(wanted: Mapping[str, object], call: Mapping[str, object]) -> list[str]:
    return [
        f"{name}: {_shown(call.get(name))}, traced {_shown(value)}"
        for name, value in wanted.items()
        if not _same(value, call.get(name))
    ]


def _same(wanted: object, found: object) -> bool:
    if wanted is _RESULT:
        return isinstance(found, dict)
    if isinstance(wanted, dict) and isinstance(found, dict):
        empty = 0 in wanted.get("shape", ())  # an empty tensor has no elements that could lie anywhere
        return all(wanted.get(part) == found.get(part) for part in (("shape", "dtype") if empty else _EXACT))
    if isinstance(wanted, list) and isinstance(found, list):
        return len(wanted) == len(found) and all(map(_same, wanted, found))
    if isinstance(wanted, float) and isinstance(found, float):
        return wanted == found or (wanted != wanted and found != found)  # noqa: PLR0124 - NaN
    return bool(wanted == found)


def _shown(value: object) -> str:
    return str(value)[:200]
