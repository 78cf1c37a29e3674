"""Recorded op calls -> programs; on the side of the records, without torch."""

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from torchstone.errors import InputError
from torchstone.record.op import OpCall, OpSignature
from torchstone.record.tensor import TensorSpec
from torchstone.record.value import Atom, Entries, Items, Value, show_value, tensors_in

Program = dict[str, Any]

_ATTENTION_KERNELS = "aten._scaled_dot_product_"


class NotReplayableError(InputError):
    """A recorded call has an argument that only existed while the model ran."""


def program_of_calls(
    calls: Sequence[OpCall], *, outputs: Sequence[int] | None = None, constants: Collection[int] = ()
) -> Program:
    """Calls in their order, tensors named after their numbers in the trace: t12.

    Tensors that no call gives are inputs, or constants where the caller says so. The outputs are those asked for, or
    else everything that the calls give and no later one of them takes.
    """
    made: dict[int, None] = {}
    taken: dict[int, None] = {}
    outside: dict[int, None] = {}
    steps = []
    for call in calls:
        outside.update(dict.fromkeys(number for number in call.inputs if number not in made))
        taken.update(dict.fromkeys(call.inputs))
        made.update(dict.fromkeys(call.outputs))
        steps.append(_step(call.signature, [*map(tensor_name, call.inputs)], [*map(tensor_name, call.outputs)]))
    wanted = [number for number in made if number not in taken] if outputs is None else list(outputs)
    wanted = wanted or list(calls[-1].outputs)
    return {
        "inputs": [tensor_name(number) for number in outside if number not in constants],
        "constants": [tensor_name(number) for number in outside if number in constants],
        "steps": steps,
        "outputs": [{"tensor": tensor_name(number)} for number in wanted],
    }


def tensor_name(number: int) -> str:
    """The name of a tensor of a trace in a program."""
    return f"t{number}"


def tensor_description(spec: TensorSpec, *, seed: int = 0) -> dict[str, object]:
    """How to make a random tensor of this spec, as `program_source.tensor_of` reads it."""
    return {"shape": list(spec.shape), "dtype": spec.dtype, "stride": list(spec.stride or ()), "seed": seed}


def _step(signature: OpSignature, inputs: list[str], outputs: list[str]) -> dict[str, Any]:
    refuse_special_tensors(signature)
    names = iter(inputs)
    given = {argument.name: argument_json(argument.value, names) for argument in signature.arguments}
    step = {"op": signature.op, "args": [], "kwargs": given, "outputs": _output_names(signature, iter(outputs))}
    return step | ({"as_called": {"enable_gqa": True}} if _shares_heads(signature) else {})


def _shares_heads(signature: OpSignature) -> bool:
    """Whether several heads of an attention kernel read one head of keys: a flag of the op that models call."""
    if not signature.op.startswith(_ATTENTION_KERNELS):
        return False
    query, key, *_ = signature.input_specs
    return query.shape[:-2] != key.shape[:-2]


def refuse_special_tensors(signature: OpSignature) -> None:
    """Raise where a tensor cannot be written to a file and made again."""
    for spec in (*signature.input_specs, *signature.output_specs):
        if spec.subclass or spec.layout != "strided":
            kind = spec.subclass or f"{spec.layout} layout"
            msg = f"{signature.op} cannot be run alone: one of its tensors is special ({kind})"
            raise NotReplayableError(msg)


def argument_json(value: Value, names: Iterator[str]) -> object:
    """A recorded argument in the form that programs have, its tensors named in order."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case TensorSpec():
            return {"tensor": next(names)}
        case Atom(kind="result", text=text):  # what an earlier step of a chain gave
            return {"tensor": text}
        case Atom(kind=kind, text=text):
            return {"atom": {"kind": kind, "text": text}}
        case Items(kind=kind, items=items):
            return {kind: [argument_json(item, names) for item in items]}
        case Entries(entries=entries):
            return {"dict": [[argument_json(key, names), argument_json(item, names)] for key, item in entries]}
        case _:
            msg = f"the call cannot be made again: it was given {show_value(value)}"
            raise NotReplayableError(msg)


def _output_names(signature: OpSignature, names: Iterator[str]) -> list[object]:
    """Names in the order of what the op returns; null for what is no tensor."""

    def named(value: Value) -> Any:
        match value:
            case TensorSpec():
                return next(names)
            case Items(items=items) if tensors_in(value):
                return [named(item) for item in items]
            case _:
                return None

    named_output = named(signature.output)
    if named_output is None:
        return []
    return named_output if isinstance(named_output, list) else [named_output]
