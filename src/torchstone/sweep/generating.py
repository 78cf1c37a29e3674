"""generate(): what was seen -> vectors that are known to be valid calls, or say why not."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

from msgspec.structs import replace

from torchstone.record.config import SeenConfiguration
from torchstone.record.task import Ending, Limits, Task
from torchstone.record.vector import Validity, Vector
from torchstone.sweep.neighbours import neighbours_of
from torchstone.sweep.payloads import payload_of
from torchstone.sweep.vectors import TRACED, vector_of, with_reason
from torchstone.workers.executor import Executor

ENTRY = "torchstone.sweep.child.validity:check_vectors"
WARM_UP = "torchstone.sweep.child.validity:warm_up"  # what the environment of these tasks is set up with
USUAL_ROLES = frozenset({"compute", "view", "random"})  # what only may draw random numbers is found out when it runs
_CALLS_PER_TASK = 100
_LIMITS = Limits(deadline_s=120.0)


def generate(
    seen: Iterable[SeenConfiguration],
    executor: Executor,
    *,
    suite: str = TRACED,
    neighbours: bool = False,
    roles: frozenset[str] = USUAL_ROLES,
) -> list[Vector]:
    """A vector for each configuration, and for each of its neighbours that is a valid call.

    A traced call that cannot be made here stays as a vector that is not valid; a neighbour that cannot be made never
    was one. Calls of other roles (factories) are not valid either: what they give need not have any value.
    """
    traced = checked([vector_of(one, suite) for one in seen], executor)
    wanted = [_of_roles(vector, roles) for vector in traced]
    if not neighbours:
        return wanted
    known = {vector.id for vector in wanted}
    valid = [vector for vector in wanted if vector.validity is Validity.VALID]
    made = {one.id: one for one in chain.from_iterable(map(neighbours_of, valid)) if one.id not in known}
    beside = checked(list(made.values()), executor, unknown_is_valid=False)
    return wanted + [vector for vector in beside if vector.validity is Validity.VALID]


def checked(vectors: Sequence[Vector], executor: Executor, *, unknown_is_valid: bool = True) -> list[Vector]:
    """The same vectors in the same order, with their roles, and with a reason where they are no valid calls."""
    asked = {vector.id: vector for vector in vectors if vector.validity is Validity.VALID}
    known = {vector.id: vector for vector in vectors}
    for identity, answer in _answers(list(asked.values()), executor):
        known[identity] = _judged(asked[identity], answer, unknown_is_valid=unknown_is_valid)
    return [known[vector.id] for vector in vectors]


def _answers(vectors: list[Vector], executor: Executor) -> Iterator[tuple[str, dict[str, Any] | None]]:
    """What the child side says of each; None for those whose process did not live to answer."""
    tasks: dict[str, tuple[Vector, ...]] = {}
    for number, group in enumerate(_groups(vectors)):
        tasks[f"check {number}"] = group
        payload = {"calls": [payload_of(vector) for vector in group]}
        executor.submit(Task(id=f"check {number}", entry=ENTRY, payload=payload, limits=_LIMITS))
    for result in executor.results():
        group = tasks[result.id]
        if result.ending is not Ending.ANSWERED and len(group) > 1:  # one of them did it: ask each alone
            for place, vector in enumerate(group):
                alone = f"{result.id}.{place}"
                tasks[alone] = (vector,)
                executor.submit(Task(id=alone, entry=ENTRY, payload={"calls": [payload_of(vector)]}, limits=_LIMITS))
            continue
        answers = result.answer if result.ending is Ending.ANSWERED else [None]
        for vector, answer in zip(group, answers or (), strict=True):
            yield vector.id, answer


def _groups(vectors: list[Vector]) -> Iterator[tuple[Vector, ...]]:
    for first in range(0, len(vectors), _CALLS_PER_TASK):
        yield tuple(vectors[first : first + _CALLS_PER_TASK])


def _judged(vector: Vector, answer: dict[str, Any] | None, *, unknown_is_valid: bool) -> Vector:
    if answer is None:
        return with_reason(vector, "torch did not live to say whether it is a valid call")
    vector = replace(vector, role=answer["role"])
    valid = unknown_is_valid if answer["valid"] is None else answer["valid"]
    return vector if valid else with_reason(vector, answer["reason"])


def _of_roles(vector: Vector, roles: frozenset[str]) -> Vector:
    if vector.validity is Validity.INVALID or vector.role in roles:
        return vector
    return with_reason(vector, f"its role is {vector.role}; ask for it with --roles")
