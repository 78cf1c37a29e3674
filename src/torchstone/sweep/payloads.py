"""A vector -> what the child side needs to run it, in plain JSON."""

from collections.abc import Iterator
from typing import Any

from torchstone.backends.recorded import NotReplayableError, argument_json
from torchstone.record.config import Configuration, TensorFacts
from torchstone.record.tensor import TensorSpec
from torchstone.record.value import tensors_in
from torchstone.record.vector import Vector


def payload_of(vector: Vector) -> dict[str, Any]:
    """The op, its arguments and how to make its inputs; raises NotReplayableError where that cannot be told."""
    configuration = vector.configuration
    if configuration is None:
        return {"vector": vector.id, "suite": vector.suite}
    names = _names()
    arguments = {one.name: argument_json(one.value, names) for one in configuration.arguments}
    specs = specs_of(configuration)
    memories = memories_of(configuration, len(specs))
    facts = {fact.tensor: fact for fact in vector.facts}
    return {
        "op": configuration.op,
        "arguments": arguments,
        "inputs": [_input(number, spec, memories[number], facts.get(number)) for number, spec in enumerate(specs)],
        "seed": seed_of(vector.id),
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


def _input(number: int, spec: TensorSpec, memory: int, fact: TensorFacts | None) -> dict[str, Any]:
    return {
        "name": f"i{number}",
        "shape": list(spec.shape),
        "dtype": spec.dtype,
        "stride": list(spec.stride or ()),
        "offset": spec.storage_offset,
        "memory": memory,
        "facts": None if fact is None else _facts(fact),
    }


def _facts(fact: TensorFacts) -> dict[str, Any]:
    known = [share for share in (fact.fewest_zeros, fact.most_zeros) if share is not None]
    return {
        "lowest": fact.lowest,
        "highest": fact.highest,
        "has_nan": fact.has_nan,
        "has_inf": fact.has_inf,
        "zeros": sum(known) / len(known) if known else None,
        "values": None if fact.values is None else list(fact.values),
    }
