"""Captured op signatures -> payloads of the child side, in plain JSON."""

from typing import Any, TypeAlias

from torchstone.record.op import OpSignature
from torchstone.record.tensor import TensorSpec
from torchstone.record.value import Atom, Items, Value

JUDGE = "torchstone.mapping.child.judge:judge_op"
SET_UP = "torchstone.mapping.child.judge:set_up"
ChildAnswer: TypeAlias = dict[str, Any]  # what the child side says of an op or a program, as JSON


def payload_of(signature: OpSignature) -> dict[str, Any]:
    """The op with its arguments by name, and the shapes that it gives."""
    return {
        "op": signature.op,
        "arguments": {one.name: _node(one.value) for one in signature.arguments},
        "outputs": [list(spec.shape) for spec in signature.output_specs],
    }


def _node(value: Value) -> object:
    match value:
        case None | bool() | int() | float() | str():
            return value
        case TensorSpec():
            return {"tensor": {"shape": list(value.shape), "dtype": value.dtype}}
        case Items(items=items):
            return [_node(item) for item in items]
        case Atom(kind="float", text=text):
            return {"number": text}
        case Atom(text=text):
            return text
        case _:
            return None
