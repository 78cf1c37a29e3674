"""One op with its arguments -> a program that any backend can compile. Needs torch alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from torchstone.backends.program import find_op, read_value
from torchstone.backends.program_format import tensor_names_in
from torchstone.sweep.child.inputs import make_inputs

_ATTENTION_KERNELS = "aten._scaled_dot_product_"
_SAVED_FOR_BACKWARD = {  # outputs that only a backward pass reads: statistics, log-sum-exp, random states
    "native_batch_norm": 1, "_native_batch_norm_legit": 1, "_native_batch_norm_legit_no_training": 1,
    "_batch_norm_with_update": 1, "_batch_norm_no_update": 1, "cudnn_batch_norm": 1, "native_layer_norm": 1,
    "native_group_norm": 1, "_fused_rms_norm": 1, "_scaled_dot_product_flash_attention_for_cpu": 1,
    "_scaled_dot_product_flash_attention": 1, "_scaled_dot_product_efficient_attention": 1, "native_dropout": 1,
    "log_sigmoid_forward": 1,
}  # fmt: skip


def unread_outputs(op_name: str, paths: Sequence[str]) -> frozenset[str]:
    """The outputs of an op that nobody reads in inference: they are reported, and do not decide."""
    first = _SAVED_FOR_BACKWARD.get(op_name.split(".")[1] if "." in op_name else "")
    return frozenset() if first is None else frozenset(paths[first:])


class NothingToCompareError(Exception):
    """The op gives no tensor."""


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


def program_of(op_name: str, arguments: Mapping[str, object], inputs: Sequence[str], lengths: Sequence[int]) -> Any:
    """The program of one call: it gives what the op returns, and after that what the op wrote to.

    `lengths` are those of the lists of tensors among the results, in order.
    """
    op = find_op(op_name)
    remaining = iter(lengths)
    outputs: list[object] = []
    flat: list[str] = []
    for position, returned in enumerate(op._schema.returns):
        if isinstance(returned.type, torch.ListType):
            names = [f"t{position}_{part}" for part in range(next(remaining))]
            outputs.append(names)
            flat.extend(names)
        elif "Tensor" in str(returned.type):
            outputs.append(f"t{position}")
            flat.append(f"t{position}")
        else:
            outputs.append(None)
    if len(outputs) == 1 and isinstance(outputs[0], list):
        outputs = outputs[0]
    written = written_inputs(op, arguments)
    if not flat and not written:
        msg = f"{op_name} gives no tensor that could be compared"
        raise NothingToCompareError(msg)
    step = {"op": op_name, "args": [], "kwargs": dict(arguments), "outputs": outputs}
    return {"inputs": list(inputs), "steps": [step], "outputs": [{"tensor": name} for name in [*flat, *written]]}


def program_for(payload: Mapping[str, Any]) -> Any:
    """The program of a vector; an op that gives lists of tensors is run once, to know how many."""
    op = find_op(payload["op"])
    names = [about["name"] for about in payload["inputs"]]
    lengths: list[int] = []
    if returns_lists(op):
        inputs = make_inputs(payload["inputs"], seed=int(payload.get("seed", 0)))
        with torch.no_grad():
            result = call_eagerly(op, payload["arguments"], dict(zip(names, inputs, strict=True)))
        lengths = list_lengths(op, result)
    program = program_of(payload["op"], payload["arguments"], names, lengths)
    if _shares_heads(payload):  # the kernel sees it by the shapes; the op that models call must be given it
        program["steps"][0]["as_called"] = {"enable_gqa": True}
    return program


def is_kernel(op_name: str) -> bool:
    """Whether an op is an attention kernel of one device, which other backends run as the op that models call."""
    return op_name.startswith(_ATTENTION_KERNELS)


def _shares_heads(payload: Mapping[str, Any]) -> bool:
    """Whether several heads of an attention kernel read one head of keys."""
    if not is_kernel(payload["op"]):
        return False
    shapes = {about["name"]: list(about["shape"]) for about in payload["inputs"]}
    query, key = (next(tensor_names_in(payload["arguments"].get(name)), "") for name in ("query", "key"))
    return shapes.get(query, [])[:-2] != shapes.get(key, [])[:-2]


def list_lengths(op: OpOverload, result: Any) -> list[int]:
    """The lengths of the lists of tensors in what an op returned."""
    returns = op._schema.returns
    parts = [result] if len(returns) == 1 else list(result or ())
    return [len(part) for part, back in zip(parts, returns, strict=False) if isinstance(back.type, torch.ListType)]


def returns_lists(op: OpOverload) -> bool:
    """Whether an op must be run to know how many tensors it gives."""
    return any(isinstance(back.type, torch.ListType) for back in op._schema.returns)


def written_inputs(op: OpOverload, arguments: Mapping[str, Any]) -> list[str]:
    """The inputs that an op changes in place."""
    return [
        name
        for argument in op._schema.arguments
        if argument.alias_info is not None and argument.alias_info.is_write
        for name in tensor_names_in(arguments.get(argument.name))
    ]
