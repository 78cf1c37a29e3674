from collections.abc import Iterator

from tests.sweep.builders import ScriptedExecutor, answered, call, died, mm, seen, tensor
from torchstone.record.config import Configuration, SeenConfiguration
from torchstone.record.task import Task, TaskResult
from torchstone.record.value import Opaque
from torchstone.record.vector import Validity, Vector
from torchstone.sweep.child.validity import check_vectors
from torchstone.sweep.generate import generate


class RealChecks(ScriptedExecutor):
    """Asks torch itself, in this process."""

    def submit(self, task: Task) -> None:
        super().submit(task)
        self._script[task.id] = [answered(task.id, check_vectors(task.payload))]


def vectors_of(*configurations: Configuration, neighbours: bool = False) -> list[Vector]:
    return generate([seen(one) for one in configurations], RealChecks(), neighbours=neighbours)


def test_a_call_that_torch_takes_becomes_a_valid_vector_with_its_role() -> None:
    found = vectors_of(mm(), call("aten.t.default", self_=tensor(2, 3)))

    assert [(one.op, one.role, one.validity.value) for one in found] == [
        ("aten.mm.default", "compute", "valid"),
        ("aten.t.default", "view", "valid"),
    ]


def test_a_traced_call_that_torch_refuses_stays_with_the_reason() -> None:
    (found,) = vectors_of(call("aten.mm.default", self_=tensor(2, 3), mat2=tensor(9, 9)))

    assert found.validity is Validity.INVALID
    assert "RuntimeError" in found.reason


def test_factories_are_left_out_by_name_not_silently() -> None:
    (found,) = vectors_of(call("aten.ones_like.default", self_=tensor(2)))

    assert found.reason == "its role is factory; ask for it with --roles"


def test_neighbours_are_kept_only_if_they_are_valid_calls() -> None:
    found = vectors_of(call("aten.view.default", self_=tensor(6), size=(Opaque(class_name="x"))), mm(), neighbours=True)
    beside = [one for one in found if one.neighbour_of]

    assert beside
    assert {one.validity for one in beside} == {Validity.VALID}
    assert len({one.id for one in found}) == len(found)


def test_a_neighbour_that_a_model_called_too_is_the_models() -> None:
    found = vectors_of(mm(2, 3, 4), mm(2, 1, 4), neighbours=True)

    assert [one.suite for one in found if one.id == mm(2, 1, 4).key] == ["model_traced"]


class OneKills(ScriptedExecutor):
    """A process that is asked about a certain call does not live to answer."""

    def results(self) -> Iterator[TaskResult]:
        while self._queue:
            task = self._queue.pop(0)
            ops = [one["op"] for one in task.payload["calls"]]
            yield self._answer(task, ops)

    @staticmethod
    def _answer(task: Task, ops: list[str]) -> TaskResult:
        return died(task.id) if "aten.sin.default" in ops else answered(task.id, check_vectors(task.payload))


def test_a_call_that_kills_the_process_harms_no_other() -> None:
    told: list[SeenConfiguration] = [seen(mm()), seen(call("aten.sin.default", self_=tensor(2))), seen(mm(5, 5, 5))]

    found = generate(told, OneKills())

    assert [one.validity.value for one in found] == ["valid", "invalid", "valid"]
    assert "did not live" in found[1].reason
