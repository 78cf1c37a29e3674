"""Configurations -> vectors, one each, named after them, and the payload that the child side runs."""

from collections.abc import Iterator
from typing import Any

from torchstone.backends.recorded import NotReplayableError, argument_json
from torchstone.backends.ttnn.recipes import is_ttnn, lost_arguments, recipe_of
from torchstone.record.chain import is_chain, steps_of
from torchstone.record.config import Configuration, SeenConfiguration, TensorFacts
from torchstone.record.tensor import TensorSpec
from torchstone.record.value import Argument, Atom, Entries, Fields, Items, Opaque, Value, show_value, tensors_in
from torchstone.record.vector import Validity, Vector

# --- Vectors as text ---


_LONGEST = 300


def call_text(vector: Vector) -> str:
    """Its call in one line, without arguments that are None; what was changed in a neighbour."""
    if vector.configuration is None:
        shown = ", ".join(f"{name}={value}" for name, value in vector.parameters.items())
    elif is_chain(vector.op):
        calls = (f"{step.op}({_arguments_text(step.arguments)})" for step in steps_of(vector.configuration))
        shown = "; ".join(f"s{number} = {call}" for number, call in enumerate(calls))
    else:
        shown = _arguments_text(vector.configuration.arguments)
    text = f"{shown} [{vector.change}]" if vector.change else shown
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def _arguments_text(arguments: tuple[Argument, ...]) -> str:
    return ", ".join(f"{one.name}={show_value(one.value)}" for one in arguments if one.value is not None)


# --- Payloads: what the child side needs to run a vector, in plain JSON ---


def payload_of(vector: Vector) -> dict[str, Any]:
    """The calls, their arguments and how to make the inputs; raises NotReplayableError where that is not known."""
    configuration = vector.configuration
    if configuration is None:
        return {"vector": vector.id, "suite": vector.suite}
    if is_ttnn(configuration.op):
        recipe = recipe_of(configuration)
        return {"recipe": recipe, "lost": lost_arguments(recipe)}
    names = _names()
    steps = [
        {"op": step.op, "arguments": {one.name: argument_json(one.value, names) for one in step.arguments}}
        for step in steps_of(configuration)
    ]
    specs = specs_of(configuration)
    memories = memories_of(configuration, len(specs))
    facts = {fact.tensor: fact for fact in vector.facts}
    return {
        "op": configuration.op,
        "steps": steps,
        "inputs": [_input(number, spec, memories[number], facts.get(number)) for number, spec in enumerate(specs)],
        "seed": seed_of(vector.id),
        "refused": vector.refused,
    }


def specs_of(configuration: Configuration) -> list[TensorSpec]:
    """The tensors among the arguments, in order; raises NotReplayableError for one that cannot be made again."""
    specs = [spec for argument in configuration.arguments for spec in tensors_in(argument.value)]
    for spec in specs:
        if spec.subclass or spec.stride is None or spec.layout != "strided":
            kind = spec.subclass or f"{spec.layout} layout"
            msg = f"{configuration.op} cannot be run alone: one of its tensors is special ({kind})"
            raise NotReplayableError(msg)
    return specs


def memories_of(configuration: Configuration, count: int) -> list[int]:
    """For each tensor the number of its memory."""
    memories = list(range(count))
    for group in configuration.aliases:
        for tensor in group:
            memories[tensor] = group[0]
    return memories


def seed_of(identity: str) -> int:
    """A seed that a vector keeps as long as it keeps its name."""
    return int.from_bytes(identity.encode()[-6:], "big")


def _names() -> Iterator[str]:
    number = 0
    while True:
        yield f"i{number}"
        number += 1


def _input(number: int, spec: TensorSpec, memory: int, fact: TensorFacts | None) -> dict[str, object]:
    return {
        "name": f"i{number}",
        "shape": list(spec.shape),
        "dtype": spec.dtype,
        "stride": list(spec.stride or ()),
        "offset": spec.storage_offset,
        "memory": memory,
        "facts": None if fact is None else _facts(fact),
    }


def _facts(fact: TensorFacts) -> dict[str, object]:
    known = [share for share in (fact.fewest_zeros, fact.most_zeros) if share is not None]
    return {
        "lowest": fact.lowest,
        "highest": fact.highest,
        "has_nan": fact.has_nan,
        "has_inf": fact.has_inf,
        "zeros": sum(known) / len(known) if known else None,
        "values": None if fact.values is None else list(fact.values),
    }


# --- Vectors of configurations ---


TRACED = "model_traced"
TTNN_ROLE = "ttnn"  # ttnn's ops have no schema that would give a more precise role
NEIGHBOURS = "neighbours"
CHAINS = "chains"  # the suite of chains, and the module that all of them belong to


def vector_of(seen: SeenConfiguration, suite: str = TRACED) -> Vector:
    """The vector of a configuration; one that cannot be made again is not valid, and says why."""
    configuration = seen.configuration
    models = sorted({one.model or one.source for one in seen.occurrences})
    vector = Vector(
        id=seen.key,
        module=CHAINS if is_chain(configuration.op) else configuration.op,
        suite=suite,
        op=configuration.op,
        configuration=configuration,
        facts=seen.facts,
        cluster=cluster_of(configuration),
        role=TTNN_ROLE if is_ttnn(configuration.op) else "",
        refused=seen.refused,
        calls=seen.calls,
        models=tuple(models),
    )
    reason = _why_not(seen, vector)
    return vector if not reason else with_reason(vector, reason)


def with_reason(vector: Vector, reason: str) -> Vector:
    """The same vector, not valid."""
    from msgspec.structs import replace

    return replace(vector, validity=Validity.INVALID, reason=reason)


def cluster_of(configuration: Configuration) -> str:
    """What vectors that differ in sizes only have in common."""
    return f"{configuration.op}({', '.join(_kind_of(one.value) for one in configuration.arguments)})"


def _why_not(seen: SeenConfiguration, vector: Vector) -> str:
    if is_ttnn(vector.op):  # what its trace has lost is said beside its verdict
        return ""
    lost = [damage for damage in seen.damage if not damage.repaired]
    if lost:
        return f"{lost[0].where} could not be read: {lost[0].kind}"
    try:
        payload_of(vector)
    except NotReplayableError as error:
        return str(error)
    return ""


def _kind_of(value: Value) -> str:
    match value:
        case TensorSpec():
            return f"{value.dtype}/{len(value.shape)}/{_layout_of(value)}"
        case None | bool() | str():
            return repr(value)
        case int():
            return "int"
        case float():
            return "float"
        case Atom(text=text):
            return text
        case Items(items=items):
            return f"[{', '.join(dict.fromkeys(map(_kind_of, items)))}]"
        case Fields(class_name=name, fields=fields):
            return f"{name}({', '.join(_kind_of(part) for _, part in fields)})"
        case Entries() | Opaque():
            return type(value).__name__
        case _:
            return "nothing"


def _layout_of(spec: TensorSpec) -> str:
    if spec.stride is None:
        return spec.layout
    if spec.is_contiguous:
        return "dense"
    return "expanded" if 0 in spec.stride else "strided"
