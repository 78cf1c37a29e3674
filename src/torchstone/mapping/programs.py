"""A module call of a trace -> the program of its op calls for the child side: inputs, weights, steps, outputs."""

import keyword
import re
from typing import Any

from torchstone.mapping.payloads import payload_of
from torchstone.record.module import ModuleCall
from torchstone.record.op import OpCall
from torchstone.record.trace import Trace

RUN = "torchstone.mapping.child.program:run_program"
_CONVOLUTIONS = ("aten.convolution", "aten._convolution")
_WORD = re.compile(r"\W+")
_NO_PATH = re.compile(r"[^\w.]+")


def program_of(trace: Trace, call: ModuleCall) -> dict[str, Any]:
    """The op calls inside a module call, with the tensors that come from outside and those that leave it."""
    ops = [trace.ops[number] for number in range(call.first_op, call.end_op)]
    external = {one.tensor: one for one in trace.tensors.external}
    made: set[int] = set()
    outside: dict[int, None] = {}
    for one in ops:
        outside.update(dict.fromkeys(number for number in one.inputs if number not in made))
        made.update(one.outputs)
    module = trace.modules[call.module]
    names = _names(list(outside), {number: external[number].name for number in outside if number in external})
    tensors = []
    for number in outside:
        known = external.get(number)
        weight = known is not None and known.kind != "input"
        spec = trace.tensors[number].spec
        path = names[number] if known is None else known.name
        about = {"number": number, "name": names[number], "path": path, "weight": weight}
        tensors.append({**about, "shape": list(spec.shape), "dtype": spec.dtype})
    leaving = [number for number in call.outputs if number in made or number in outside]
    return {
        "class": _as_name(module.class_name.rpartition(".")[2]),
        "path": _NO_PATH.sub("_", module.path),
        "tensors": tensors,
        "steps": [_step(one) for one in ops],
        "outputs": leaving or list(ops[-1].outputs if ops else ()),
    }


def on_the_host(program: dict[str, Any]) -> set[int]:
    """The weights that only convolutions read: ttnn's conv2d takes them from the host, and prepares them itself."""
    uses: dict[int, set[bool]] = {}
    for step in program["steps"]:
        is_convolution = step["op"].startswith(_CONVOLUTIONS)
        for name, node in step["arguments"].items():
            for number in numbers_in(node):
                uses.setdefault(number, set()).add(is_convolution and name == "weight")
    return {one["number"] for one in program["tensors"] if one["weight"] and uses.get(one["number"]) == {True}}


def numbers_in(node: object) -> list[int]:
    """The tensors in an argument."""
    if isinstance(node, list):
        return [number for part in node for number in numbers_in(part)]
    return [node["number"]] if isinstance(node, dict) and "tensor" in node else []


def _step(call: OpCall) -> dict[str, object]:
    given = payload_of(call.signature)
    numbers = iter(call.inputs)

    def numbered(node: object) -> Any:
        if isinstance(node, list):
            return [numbered(one) for one in node]
        return {**node, "number": next(numbers)} if isinstance(node, dict) and "tensor" in node else node

    arguments = {name: numbered(node) for name, node in given["arguments"].items()}
    return {"op": call.op, "arguments": arguments, "outputs": list(call.outputs), "writes": list(call.writes)}


def _as_name(text: str) -> str:
    """A name for code, from a trace that may be a file of others."""
    name = _WORD.sub("_", text)
    return name if name.isidentifier() and not keyword.iskeyword(name) else f"Module_{name}"


def _names(numbers: list[int], known: dict[int, str]) -> dict[int, str]:
    """A Python name for each tensor; the last parts of a parameter's path, or x0, x1 for what a caller gives."""
    found: dict[int, str] = {}
    taken: set[str] = set()
    for place, number in enumerate(numbers):
        parts = known.get(number, f"x{place}").split(".")
        name = _WORD.sub("_", "_".join(parts[-2:])).strip("_") or f"x{place}"
        name = f"w_{name}" if keyword.iskeyword(name) or name[0].isdigit() or name == "device" else name
        while name in taken or re.fullmatch(r"t\d+", name):
            name = f"{name}_{place}"
        taken.add(name)
        found[number] = name
    return found
