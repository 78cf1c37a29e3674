from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchstone.check.plan import Node, Walk, worst
from torchstone.record.check import Status


def tree(parents: Sequence[int], containers: frozenset[int] = frozenset()) -> dict[str, Node]:
    """Node 0 is the root; parents[i] is the parent of node i + 1."""
    children: dict[int, list[str]] = {number: [] for number in range(len(parents) + 1)}
    depths = [0]
    for number, parent in enumerate(parents, start=1):
        children[parent].append(f"m{number}")
        depths.append(depths[parent] + 1)
    return {
        f"m{number}": Node(
            id=f"m{number}",
            children=tuple(children[number]),
            units=() if number in containers else (f"u{number}",),
            depth=depths[number],
        )
        for number in range(len(parents) + 1)
    }


def walked(walk: Walk, failing: frozenset[str]) -> list[str]:
    """Run a walk to its end; gives the units in the order they ran."""
    ahead, ran = walk.begin(), []
    while ahead:
        unit = ahead.pop(0)
        ran.append(unit)
        ahead += walk.tell(unit, Status.FAILED if unit in failing else Status.SUCCESS)
    return ran


def test_what_passes_in_doubt_is_walked_on() -> None:
    walk = Walk(tree([0, 0, 1]), ["m0"])

    (root,) = walk.begin()
    assert walk.tell(root, Status.SUCCESS, doubted=True) == ["u1", "u2"]
    assert walk.tell("u1", Status.FAILED) == ["u3"]
    assert walk.tell("u2", Status.SUCCESS) == []
    assert statuses(walk)["m0"] == "success"
    assert walk.failed() == ["m1"]


def statuses(walk: Walk) -> Mapping[str, str]:
    return {name: conclusion.status.value for name, conclusion in walk.conclude().items()}


@st.composite
def trees_with_faults(draw: st.DrawFn) -> tuple[list[int], frozenset[int], frozenset[int]]:
    size = draw(st.integers(0, 25))
    parents = [draw(st.integers(0, number)) for number in range(size)]
    inner = sorted(set(parents) - {0})
    containers = frozenset(draw(st.lists(st.sampled_from(inner)))) if inner else frozenset()
    runnable = [number for number in range(size + 1) if number not in containers]
    return parents, containers, frozenset(draw(st.lists(st.sampled_from(runnable), max_size=3)))


@given(trees_with_faults())
def test_exactly_the_planted_faults_and_what_is_around_them_fail(
    planted: tuple[list[int], frozenset[int], frozenset[int]],
) -> None:
    parents, containers, faults = planted
    nodes = tree(parents, containers)
    around = set(faults)  # a fault is seen in every module around it
    for fault in faults:
        number = fault
        while number:
            number = parents[number - 1]
            around.add(number)
    failing = frozenset(f"u{number}" for number in around if number not in containers)
    walk = Walk(nodes, ["m0"])

    ran = walked(walk, failing)

    assert {name for name, status in statuses(walk).items() if status == "failed"} == {
        f"m{unit[1:]}" for unit in failing
    }
    assert len(ran) == len(set(ran))
    assert {name for name in walk.failed() if not walk.has_failure_below(name)} <= {f"m{fault}" for fault in faults}


@given(trees_with_faults())
def test_what_is_inside_a_passing_module_never_runs(
    planted: tuple[list[int], frozenset[int], frozenset[int]],
) -> None:
    parents, containers, _ = planted
    walk = Walk(tree(parents, containers), ["m0"])

    assert walked(walk, frozenset()) == ["u0"]
    assert set(statuses(walk).values()) <= {"success", "inherited_success"}


def test_a_container_is_passed_over_and_tells_the_worst_below_it() -> None:
    walk = Walk(tree([0, 1, 1], containers=frozenset({1})), ["m0"])

    walked(walk, frozenset({"u0", "u3"}))

    conclusion = walk.conclude()["m1"]
    assert (conclusion.status, conclusion.children_status) == (Status.SKIPPED, Status.FAILED)
    assert conclusion.reached


def test_a_module_that_hangs_under_two_parents_runs_once() -> None:
    nodes = {
        "root": Node(id="root", children=("a", "b"), units=("root",)),
        "a": Node(id="a", children=("norm",), units=("a",), depth=1),
        "b": Node(id="b", children=("norm",), units=("b",), depth=1),
        "norm": Node(id="norm", units=("norm",), depth=2),
    }
    walk = Walk(nodes, ["root"])

    assert walked(walk, frozenset({"root", "a", "b"})).count("norm") == 1


def test_one_bad_kind_of_call_makes_the_module_bad() -> None:
    nodes = {
        "root": Node(id="root", children=("leaf",), units=("small", "large")),
        "leaf": Node(id="leaf", units=("x",)),
    }
    walk = Walk(nodes, ["root"])
    walk.begin()

    assert walk.tell("large", Status.FAILED) == []
    assert walk.tell("small", Status.SUCCESS) == ["x"]
    assert walk.conclude()["root"].status is Status.FAILED


def test_a_failed_export_sends_the_walk_to_the_children() -> None:
    walk = Walk(tree([0]), ["m0"])
    walk.begin()

    assert walk.tell("u0", Status.IR_EXPORT_FAILED) == ["u1"]
    assert walk.conclude()["m0"].status is Status.IR_EXPORT_FAILED


@pytest.mark.parametrize(("max_depth", "ran"), [(0, ["u0"]), (1, ["u0", "u1"]), (None, ["u0", "u1", "u2"])])
def test_a_limit_of_depth_keeps_the_walk_from_what_is_below(max_depth: int | None, ran: list[str]) -> None:
    walk = Walk(tree([0, 1]), ["m0"], max_depth=max_depth)

    assert walked(walk, frozenset({"u0", "u1", "u2"})) == ran
    assert walk.conclude()["m2"].reached == (max_depth is None)


def test_the_worst_is_what_must_be_seen_first() -> None:
    assert worst([Status.SUCCESS, Status.IR_EXPORT_FAILED, Status.FAILED]) is Status.FAILED
    assert worst([Status.INHERITED_SUCCESS, Status.SUCCESS]) is Status.SUCCESS
