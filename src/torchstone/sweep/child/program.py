"""One op call, or a chain of them -> a program that any backend can compile. Needs torch alone.

A payload has `steps`, each {"op", "arguments"}, and `inputs`. What a step returns at a position is named
s<step>_<position>, or s<step>_<position>_<part> in a list of tensors; later steps take it by that name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from torchstone.backends.program import find_op, read_value, written_names
from torchstone.backends.program_format import portable, tensor_names_in
from torchstone.numerics.dtypes import dtype_name
from torchstone.numerics.value_facts import value_facts
from torchstone.sweep.child.inputs import make_inputs

_ATTENTION_KERNELS = "aten._scaled_dot_product_"
_SAVED_FOR_BACKWARD = {  # outputs that only a backward pass reads: statistics, log-sum-exp, random states
    "native_batch_norm": 1, "_native_batch_norm_legit": 1, "_native_batch_norm_legit_no_training": 1,
    "_batch_norm_with_update": 1, "_batch_norm_no_update": 1, "cudnn_batch_norm": 1, "native_layer_norm": 1,
    "native_group_norm": 1, "_fused_rms_norm": 1, "_scaled_dot_product_flash_attention_for_cpu": 1,
    "_scaled_dot_product_flash_attention": 1, "_scaled_dot_product_efficient_attention": 1, "native_dropout": 1,
    "log_sigmoid_forward": 1,
}  # fmt: skip


class NothingToCompareError(Exception):
    """The op gives no tensor."""


Json = Mapping[str, Any]  # as the payload of a task has it
JsonObject = dict[str, Any]


def call_eagerly(op: OpOverload, arguments: Mapping[str, object], tensors: Mapping[str, Tensor]) -> Any:
    """Call an op with all arguments by name."""
    positional, named = [], {}
    for argument in op._schema.arguments:
        if argument.name not in arguments:
            continue
        value = read_value(arguments[argument.name], tensors)
        if argument.kwarg_only:
            named[argument.name] = value
        else:
            positional.append(value)
    return op(*positional, **named)


def run_steps(payload: Json, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Call all ops one after the other, as they were traced; all inputs and results by name."""
    known = dict(tensors)
    for number, step in enumerate(payload["steps"]):
        op = find_op(step["op"])
        result = call_eagerly(op, step["arguments"], known)
        known |= dict(named_results(number, op, result))
    return known


def named_results(number: int, op: OpOverload, result: Any) -> Iterator[tuple[str, Tensor]]:
    """The tensors that a step returned, by name."""
    parts = [result] if len(op._schema.returns) == 1 else list(result or ())
    for position, part in enumerate(parts):
        if isinstance(part, Tensor):
            yield f"s{number}_{position}", part
        elif isinstance(part, list | tuple):
            yield from ((f"s{number}_{position}_{place}", one) for place, one in enumerate(part))


def describe_results(payload: Json) -> list[JsonObject]:
    """What each step gives when the vector is run eagerly: the layout and the range of values of each result."""
    names = [about["name"] for about in payload["inputs"]]
    inputs = make_inputs(payload["inputs"], seed=int(payload.get("seed", 0)))
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        known = run_steps(payload, dict(zip(names, inputs, strict=True)))
    return [_described(name, tensor) for name, tensor in known.items() if name not in names]


def _described(name: str, tensor: Tensor) -> JsonObject:
    spec = {"shape": list(tensor.shape), "dtype": dtype_name(tensor.dtype), "stride": list(tensor.stride())}
    facts = value_facts(tensor) or {}
    return {"name": name, "spec": {**spec, "storage_offset": tensor.storage_offset()}, "facts": facts}


def program_for(payload: Json) -> Any:
    """The program of a vector: it gives what no later step takes, and after that the inputs that were written to.

    A vector with an op that gives lists of tensors is run once, to know how many; a chain with an attention kernel, for
    the shapes of what the kernel is given.
    """
    names = [about["name"] for about in payload["inputs"]]
    known: Mapping[str, Tensor] = {}
    ops = [step["op"] for step in payload["steps"]]
    if any(map(_must_run, ops)) and (len(ops) > 1 or not is_kernel(ops[0])):
        inputs = make_inputs(payload["inputs"], seed=int(payload.get("seed", 0)))
        with torch.no_grad():
            known = run_steps(payload, dict(zip(names, inputs, strict=True)))
    shapes = {about["name"]: list(about["shape"]) for about in payload["inputs"]}
    shapes |= {name: list(tensor.shape) for name, tensor in known.items()}
    steps = [_step(number, step, known, shapes) for number, step in enumerate(payload["steps"])]
    program: JsonObject = {"inputs": names, "steps": steps}
    program["outputs"] = [{"tensor": name} for name in _outputs(program)]
    if not program["outputs"]:
        msg = f"{payload['op']} gives no tensor that could be compared"
        raise NothingToCompareError(msg)
    return program


def _step(number: int, step: Json, known: Mapping[str, Tensor], shapes: Mapping[str, list[int]]) -> JsonObject:
    op = find_op(step["op"])
    outputs: list[Any] = []
    for position, returned in enumerate(op._schema.returns):
        name = f"s{number}_{position}"
        if isinstance(returned.type, torch.ListType):
            parts = sum(1 for one in known if one.startswith(f"{name}_"))
            outputs.append([f"{name}_{place}" for place in range(parts)])
        else:
            outputs.append(name if "Tensor" in str(returned.type) else None)
    if len(outputs) == 1 and isinstance(outputs[0], list):
        outputs = outputs[0]
    made = {"op": step["op"], "args": [], "kwargs": dict(step["arguments"]), "outputs": outputs}
    if _shares_heads(step, shapes):  # the kernel sees it by the shapes; the op that models call must be given it
        made["as_called"] = {"enable_gqa": True}
    return made


def _outputs(program: Json) -> list[str]:
    """The results that no later step takes, and the inputs that are written to, in their order."""
    taken: set[str] = set()
    found: list[str] = []
    for step in reversed(program["steps"]):
        found = [name for name in _flat(step["outputs"]) if name not in taken] + found
        taken |= {name for argument in step["kwargs"].values() for name in tensor_names_in(argument)}
    written = written_names({**program, "outputs": []})
    return found + [name for name in program["inputs"] if name in written]


def _flat(outputs: Any) -> list[str]:
    return [one for part in outputs for one in (_flat(part) if isinstance(part, list) else [part]) if one]


def unread_names(program: Json) -> set[str]:
    """The results that only a backward pass reads."""
    unread: set[str] = set()
    for step in program["steps"]:
        first = _SAVED_FOR_BACKWARD.get(step["op"].split(".")[1] if "." in step["op"] else "")
        if first is not None:
            unread |= set(_flat(step["outputs"][first:]))
    return unread


def unread_outputs(program: Json, paths: list[str]) -> frozenset[str]:
    """The outputs that only a backward pass reads, by path: they are reported, and do not decide."""
    unread = unread_names(program)
    names = [tree["tensor"] for tree in portable(program)["outputs"]]
    return frozenset(path for name, path in zip(names, paths, strict=False) if name in unread)


def is_kernel(op_name: str) -> bool:
    """Whether an op is an attention kernel of one device, which other backends run as the op that models call."""
    return op_name.startswith(_ATTENTION_KERNELS)


def _shares_heads(step: Json, shapes: Mapping[str, list[int]]) -> bool:
    """Whether several heads of an attention kernel read one head of keys."""
    if not is_kernel(step["op"]):
        return False
    query, key = (next(tensor_names_in(step["arguments"].get(name)), "") for name in ("query", "key"))
    return shapes.get(query, [])[:-2] != shapes.get(key, [])[:-2]


def _must_run(op_name: str) -> bool:
    """Whether an op must be run to know how many tensors it gives, or what shapes a kernel is given in a chain."""
    returns = find_op(op_name)._schema.returns
    return is_kernel(op_name) or any(isinstance(back.type, torch.ListType) for back in returns)
