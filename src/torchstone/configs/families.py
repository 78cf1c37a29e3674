"""Configurations of an op -> families that differ only in a number; and how much of a model passed on a backend."""

from collections.abc import Iterable, Mapping

import msgspec

from torchstone.record.base import Record
from torchstone.record.config import ModelCoverage, OpCoverage, SeenConfiguration
from torchstone.record.ttnn import TtnnTensor, ttnn_tensor
from torchstone.record.value import Argument, Entries, Fields, Items, Value, entry
from torchstone.record.vector import FAILED, Status

# --- Families: configurations that differ only in a number, a place on a mesh or a machine ---


_ANY = "any"
_PLACES = ("set", "MeshDevice", "MeshCoordinate", "GlobalSemaphore", "global_semaphore", "SubDeviceId")


class Family(Record, frozen=True, kw_only=True):
    """Configurations that are near duplicates of each other, the most called first."""

    members: tuple[SeenConfiguration, ...]

    @property
    def calls(self) -> int:
        """The calls of all members."""
        return sum(member.calls for member in self.members)


def families_of(seen: Iterable[SeenConfiguration]) -> tuple[Family, ...]:
    """Group near duplicates; the family with the most calls comes first."""
    together: dict[str, list[SeenConfiguration]] = {}
    for one in seen:
        shape = msgspec.json.encode([one.configuration.op, *map(_argument, one.configuration.arguments)]).decode()
        together.setdefault(shape, []).append(one)
    families = [
        Family(members=tuple(sorted(members, key=lambda one: (-one.calls, one.key)))) for members in together.values()
    ]
    return tuple(sorted(families, key=lambda family: (-family.calls, -len(family.members), family.members[0].key)))


def _argument(argument: Argument) -> list[object]:
    return [argument.name, _outline(argument.value)]


def _outline(value: Value) -> object:
    """The part of a value that all members of a family share."""
    tensor = ttnn_tensor(value)
    if tensor is not None:
        return _tensor_outline(tensor)
    match value:
        case bool() | int() | float():
            return _ANY
        case str():
            return _ANY if _is_number(value) else value
        case Items(items=items):
            return [_outline(item) for item in items]
        case Entries(entries=entries):
            if entry(value, "type") in _PLACES:
                return _ANY
            return [[str(key), _outline(item)] for key, item in entries if key != "hash"]
        case Fields(class_name=name, fields=fields):
            return [name, *([part, _outline(item)] for part, item in fields)]
        case _:
            return value


def _tensor_outline(tensor: TtnnTensor) -> TtnnTensor:
    return msgspec.structs.replace(tensor, placement="")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


# --- Coverage: how many calls of a model pass on a backend ---


def coverage_of(
    seen: Iterable[SeenConfiguration], statuses: Mapping[str, Status], *, models: tuple[str, ...], backend: str
) -> ModelCoverage:
    """The share of calls of these models whose configurations pass; calls of other models do not count."""
    together: dict[str, list[tuple[int, Status | None]]] = {}
    callers: dict[str, list[tuple[bool, str]]] = {}  # by op: whether a configuration was tested, and a model of it
    uncounted = 0
    for one in seen:
        places = [place for place in one.occurrences if place.model in models]
        uncounted += sum(place.count is None for place in places)
        calls = sum(place.count for place in places if place.count is not None)
        status = statuses.get(one.key)
        together.setdefault(one.configuration.op, []).append((calls, status))
        callers.setdefault(one.configuration.op, []).extend((status in _TESTED, place.model) for place in places)
    ops = [_op_coverage(op, ended, callers[op]) for op, ended in together.items()]
    ops.sort(key=lambda op: (op.passed_calls - op.calls, op.passed - op.configurations, op.op))
    return ModelCoverage(models=models, backend=backend, ops=tuple(ops), uncounted=uncounted)


_TESTED = (Status.PASS, Status.XFAIL, *FAILED)


def _op_coverage(op: str, ended: list[tuple[int, Status | None]], callers: list[tuple[bool, str]]) -> OpCoverage:
    passed = [calls for calls, status in ended if status is Status.PASS]
    failed = [calls for calls, status in ended if status in FAILED or status is Status.XFAIL]
    return OpCoverage(
        op=op,
        configurations=len(ended),
        passed=len(passed),
        failed=len(failed),
        calls=sum(calls for calls, _ in ended),
        passed_calls=sum(passed),
        failed_calls=sum(failed),
        models=len({model for _, model in callers}),
        untested_models=len({model for is_tested, model in callers if not is_tested}),
    )
