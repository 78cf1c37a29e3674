"""Programs as JSON: the kinds of arguments, and kernels replaced by ops that exist on every device. Without torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

# --- Arguments: their kinds, and the tensors they name ---


class ProgramError(Exception):
    """A program says something that cannot be understood."""


def only_entry(argument: Mapping[str, object]) -> tuple[str, Any]:
    """The kind of a value and what it holds."""
    if len(argument) != 1:
        msg = f"the program has an argument that is not a value: {dict(argument)!r}"
        raise ProgramError(msg)
    return next(iter(argument.items()))


def tensor_names_in(argument: object) -> Iterator[str]:
    """The names of the tensors in an argument, in order."""
    if isinstance(argument, list):
        for item in argument:
            yield from tensor_names_in(item)
    elif isinstance(argument, Mapping):
        kind, content = only_entry(argument)
        if kind == "tensor":
            yield content
        elif kind == "dict":
            for _, item in content:
                yield from tensor_names_in(item)
        elif kind != "atom":
            for item in content:
                yield from tensor_names_in(item)


# A program as recorded on one device -> the same without kernels that only exist there. Attention is one op to the
# model and another to each device: on a CPU torch picks a flash kernel, which no compiler has to know. Its further
# results are notes for the backward pass. Where no step reads them they are dropped, and the op becomes the one that
# the model called.


_KERNELS = {  # arguments in order
    "aten._scaled_dot_product_flash_attention_for_cpu.default": (
        "query", "key", "value", "dropout_p", "is_causal", "attn_mask", "scale",
    ),
    "aten._scaled_dot_product_flash_attention.default": (
        "query", "key", "value", "dropout_p", "is_causal", "return_debug_mask", "scale",
    ),
    "aten._scaled_dot_product_efficient_attention.default": (
        "query", "key", "value", "attn_mask", "compute_log_sumexp", "dropout_p", "is_causal", "scale",
    ),
}  # fmt: skip
_OTHER_NAMES = {"attn_bias": "attn_mask"}
_TAKEN = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale")
ATTENTION = "aten.scaled_dot_product_attention.default"


def portable(description: Mapping[str, Any]) -> dict[str, Any]:
    """The same program for any device; one without such kernels is given back as it is."""
    steps = list(description["steps"])
    dropped: set[str] = set()
    for place, step in enumerate(steps):
        if step["op"] not in _KERNELS:
            continue
        notes = {name for name in step["outputs"][1:] if isinstance(name, str)}
        if notes & _names_read_by(steps[place + 1 :]):
            continue
        dropped |= notes
        steps[place] = {
            "op": ATTENTION,
            "args": [],
            "kwargs": _arguments(step),
            "outputs": list(step["outputs"][:1]),
        }
    outputs = [tree for tree in description["outputs"] if not dropped.intersection(tensor_names_in(tree))]
    if not outputs:
        return dict(description)  # the notes are all that was asked for
    return {**description, "steps": steps, "outputs": outputs}


def _arguments(step: Mapping[str, Any]) -> dict[str, Any]:
    given = dict(zip(_KERNELS[step["op"]], step.get("args", ()), strict=False))
    given |= {_OTHER_NAMES.get(name, name): value for name, value in step.get("kwargs", {}).items()}
    as_called: dict[str, object] = step.get("as_called", {})  # what a kernel sees by the shapes, and the model said
    return {name: given[name] for name in _TAKEN if name in given} | as_called


def _names_read_by(steps: list[Mapping[str, Any]]) -> set[str]:
    arguments = (one for step in steps for one in (*step.get("args", ()), *step.get("kwargs", {}).values()))
    return {name for argument in arguments for name in tensor_names_in(argument)}
