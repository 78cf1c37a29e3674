from hypothesis import given, settings
from hypothesis import strategies as st

from tests.memory.log_generator.graphs import random_graph
from tests.memory.timelines import study_of
from torchstone.memory.compare import compare, grown_peaks
from torchstone.record.memory_findings import Change


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


def test_every_op_of_both_runs_is_aligned_once() -> None:
    first, _ = study_of(3)
    second, _ = study_of(8)

    rows = compare(first, second).rows

    mine = [op for op in rows.first_ops.values() if op >= 0]
    other = [op for op in rows.second_ops.values() if op >= 0]
    assert len(set(mine)) == len(mine)
    assert len(set(other)) == len(other)
    assert len(rows.text_of) == len(rows.first_ops) == len(rows.second_allocated)


def test_effects_in_a_memory_that_is_not_there_are_unknown() -> None:
    study, _ = study_of(3)

    assert set(compare(study, study, memory="NOTHING").rows.first_allocated.values()) == {-1}


def test_growth_beyond_what_is_allowed_is_named() -> None:
    pair = sorted((study_of(3)[0], study_of(8)[0]), key=lambda study: max(study.readings["DRAM"].allocated))

    grown = grown_peaks(compare(*pair), max_growth_percent=1)

    assert "DRAM" in {mine.memory for mine, _ in grown}
    assert grown_peaks(compare(*pair), max_growth_percent=1e9) == []
