"""Programs in the child: the values they start from, and the module a backend is given."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from torchstone.backends.program import find_op, read_value
from torchstone.backends.program_format import tensor_names_in
from torchstone.check.child.model import Payload, has_model, loaded_model
from torchstone.check.child.recording import tensor_at
from torchstone.check.child.values import copied
from torchstone.numerics.tensor_files import read_tensors

Step = dict[str, Any]


def starting_values(payload: Payload) -> dict[str, Tensor]:
    """The tensors that a module call reads from outside: kept ones, and weights from the model or their file."""
    document = json.loads(Path(payload["call"]).read_text(encoding="utf-8"))
    values: dict[str, Tensor] = {}
    kept = read_tensors(Path(payload["values"])) if Path(payload["values"]).is_file() else {}
    weights: Mapping[str, Tensor] | None = None
    for name, path in document["externals"].items():
        if name in kept:
            values[name] = kept[name]
        elif path is not None and has_model():
            values[name] = tensor_at(loaded_model().model, path)
        elif path is not None:
            weights = weights if weights is not None else read_tensors(Path(payload["weights"]))
            values[name] = weights[name]
    return values


def inputs_of_steps(payload: Payload, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What the chosen steps of a call read, found by running the call's ops up to them."""
    document = json.loads(Path(payload["call"]).read_text(encoding="utf-8"))
    needed = {*payload["program"]["inputs"], *payload["program"]["constants"]}
    chosen = set(payload["chosen"])
    names: dict[str, Any] = {name: copied(value) for name, value in values.items()}
    found: dict[str, Tensor] = {}
    with torch.no_grad():
        for place in range(max(chosen) + 1):
            step = document["steps"][place]
            if place in chosen:
                read = [name for argument in step["kwargs"].values() for name in tensor_names_in(argument)]
                for name in read:
                    if name in needed and name not in found:
                        found[name] = copied(names[name])
            run_step(step, names)
    return found


def run_step(step: Step, names: dict[str, Any]) -> None:
    """Run one recorded op; its results get their names."""
    arguments = {name: read_value(argument, names) for name, argument in step["kwargs"].items()}
    positional = [arguments.pop(name) for name in positional_names(step)]
    result = find_op(step["op"])(*positional, **arguments)
    _name(result, step["outputs"], names)


def _name(result: object, outputs: list[Any], names: dict[str, Any]) -> None:
    parts = result if isinstance(result, (list, tuple)) else [result]
    for part, name in zip(parts, outputs, strict=False):
        if isinstance(name, list):
            _name(part, name, names)
        elif name is not None:
            names[name] = part


def positional_names(step: Step) -> list[str]:
    """The arguments of a step that its op takes by position, in order."""
    arguments = find_op(step["op"])._schema.arguments
    taken = []
    for argument in arguments:
        if argument.kwarg_only or argument.name not in step["kwargs"]:
            break
        taken.append(argument.name)
    return taken


def as_written_by_hand(program: dict[str, Any]) -> dict[str, Any]:
    """The same program as people would write it: arguments by position, and without those that are the default."""
    return {**program, "steps": [_step_as_written_by_hand(step) for step in program["steps"]]}


def _step_as_written_by_hand(step: Step) -> Step:
    defaults = {
        argument.name: argument.default_value
        for argument in find_op(step["op"])._schema.arguments
        if argument.has_default_value()
    }
    positional = positional_names(step)
    named = {
        name: value
        for name, value in step["kwargs"].items()
        if name not in positional and not _is_default(value, name, defaults)
    }
    while positional and _is_default(step["kwargs"][positional[-1]], positional[-1], defaults):
        positional.pop()
    return {**step, "args": [step["kwargs"][name] for name in positional], "kwargs": named}


def _is_default(value: object, name: str, defaults: Mapping[str, object]) -> bool:
    if name not in defaults:
        return False
    default = defaults[name]
    plain = value["list"] if isinstance(value, dict) and "list" in value else value
    return type(plain) is type(default) and bool(plain == default)
