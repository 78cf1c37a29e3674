"""`config_hash` of ttnn master files: the rules that made it over time, and which one makes a given hash again.

All rules hash the JSON of operation, arguments, hardware and mesh. They differ in what is done to the arguments first
and in whether the mesh counts; the files do not say which rule they follow.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from itertools import combinations
from typing import Any

from torchstone.record.base import Record

Step = Callable[[Any], Any]

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_SHAPE = re.compile(r"Shape\(\[(?P<sizes>[-0-9, ]*)\]\)")
_NOT_FINITE = ("inf", "-inf", "nan")


class HashRule(Record, frozen=True, kw_only=True):
    """One way to make the hash; `name` is what a database keeps beside a hash that it verified."""

    name: str
    steps: tuple[Step, ...] = ()
    with_mesh: bool = False

    def hash(self, operation: str, arguments: Any, machine: dict[str, Any]) -> str:
        """The hash of one configuration."""
        for step in self.steps:
            arguments = _everywhere(arguments, step)
        content = {
            "operation": operation,
            "arguments": arguments,
            "hardware": hardware_of(machine),
            "mesh": mesh_of(machine) if self.with_mesh else None,
        }
        return sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def hardware_of(machine: dict[str, Any]) -> list[Any] | None:
    """The machine as the hash knows it; None where the file does not name the board."""
    if not machine.get("board_type"):
        return None
    series = machine.get("device_series")
    first = (series[0] if series else None) if isinstance(series, list) else series
    return [machine["board_type"], first, machine.get("card_count") or 1]


def mesh_of(machine: dict[str, Any]) -> dict[str, Any] | None:
    """The mesh as the newest rule knows it."""
    shape, count = machine.get("mesh_device_shape"), machine.get("device_count")
    if shape:
        return {"mesh_shape": shape, "placement_type": None, "shard_dim": None}
    if count:
        return {"mesh_shape": None, "device_count": count, "placement_type": None, "shard_dim": None}
    return None


def verified_rule(
    foreign_hash: str, operation: str, arguments: Any, machine: dict[str, Any], rules: Sequence[HashRule]
) -> HashRule | None:
    """The first rule that makes the hash again; None: none of them does."""
    return next((rule for rule in rules if rule.hash(operation, arguments, machine) == foreign_hash), None)


def _everywhere(value: Any, step: Step) -> Any:
    """A copy with a step applied to each object and scalar, the innermost first."""
    if isinstance(value, dict):
        return step({key: _everywhere(item, step) for key, item in value.items()})
    if isinstance(value, list):
        return [_everywhere(item, step) for item in value]
    return step(value)


def _infinity_as_number(value: Any) -> Any:
    return float(value) if isinstance(value, str) and value in _NOT_FINITE else value


def _infinity_as_text(value: Any) -> Any:
    return str(value) if isinstance(value, float) and str(value) in _NOT_FINITE else value


def _tidied(value: Any) -> Any:
    """No hash inside, no shard as the word None, no addresses."""
    if isinstance(value, dict):
        kept = {key: item for key, item in value.items() if not (key == "hash" and _is_whole(item))}
        return kept | {"shard_spec": "None"} if "shard_spec" in kept and kept["shard_spec"] is None else kept
    return _ADDRESS.sub("", value) if isinstance(value, str) else value


def _shape_as_list(value: Any) -> Any:
    if isinstance(value, dict) and value.get("type") == "Shape" and isinstance(value.get("value"), str):
        found = _SHAPE.fullmatch(value["value"])
        return [int(size) for size in found["sizes"].split(",") if size.strip()] if found else value
    return value


def _without_worker_cores(value: Any) -> Any:
    if isinstance(value, dict) and value.get("allowed_worker_cores", "") is None:
        return {key: item for key, item in value.items() if key != "allowed_worker_cores"}
    return value


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


_LATER_STEPS: dict[str, Step] = {
    "inf as text": _infinity_as_text,
    "shape as list": _shape_as_list,
    "no empty worker cores": _without_worker_cores,
}


def _all_rules() -> Iterator[HashRule]:
    """Newest habits last in a name; files are younger than the newest rule they follow, so any mixture is tried."""
    for mesh in (False, True):
        ending = ", mesh" if mesh else ""
        yield HashRule(name=f"raw{ending}", with_mesh=mesh)
        yield HashRule(name=f"raw, inf as number{ending}", steps=(_infinity_as_number,), with_mesh=mesh)
        for size in range(len(_LATER_STEPS) + 1):
            for names in combinations(_LATER_STEPS, size):
                steps = (_tidied, *(_LATER_STEPS[name] for name in names))
                yield HashRule(name=", ".join(("tidied", *names)) + ending, steps=steps, with_mesh=mesh)
        yield HashRule(name=f"tidied, inf as number{ending}", steps=(_tidied, _infinity_as_number), with_mesh=mesh)


RULES = tuple(_all_rules())
