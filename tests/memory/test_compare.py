from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.memory.log_generator.graphs import Graph, random_graph
from tests.memory.timelines import study_of
from torchstone.memory.compare import compare
from torchstone.record.memory_findings import Change


def without_op(graph: Graph, name: str) -> Graph:
    kept = next(op for op in graph.ops if op.name == name)
    users = [op for op in graph.ops if kept.results[0][0] in op.operands]
    assert not users
    return replace(graph, ops=[op for op in graph.ops if op is not kept])


@settings(deadline=None, max_examples=10)
@given(seed=st.integers(0, 10**6))
def test_a_run_compared_with_itself_has_no_difference(seed: int) -> None:
    study, _ = study_of(seed)

    found = compare(study, study)

    assert found.differences == ()
    assert found.first_difference is None
    assert found.same_ops > 0
    assert all(mine == other for mine, other in found.peaks)


def test_an_added_op_is_found_with_its_effect() -> None:
    short, long = random_graph(3, num_ops=6), random_graph(3, num_ops=7)
    first, _ = study_of([short])
    second, _ = study_of([long])

    found = compare(first, second)

    assert found.added_ops >= 1
    assert found.first_difference is not None
    added = [row for row in found.differences if row.change is Change.ADDED]
    assert all(row.first_op == -1 and row.second_op >= 0 for row in added)


def test_a_memory_that_one_run_lacks_has_no_peak_there() -> None:
    first, _ = study_of(3)
    second, _ = study_of(3)
    second.timeline.memories[0].name  # noqa: B018 - both have DRAM
    found = compare(first, second, memory="NOTHING")

    assert all(row.first_effect_ticks is None for row in found.differences)
