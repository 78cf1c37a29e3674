"""The search for the largest batch, on memory that grows in known ways: its answer is that of trying every batch."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchstone.cost.batch_search import BatchPeaks, BatchSearch
from torchstone.cost.largest_batch import BatchRange


def enclosed(
    peak_of: Callable[[int], int], memory: int, *, first: int, runs: Callable[[int], bool] = lambda _: True
) -> tuple[BatchRange, BatchSearch]:
    tried: list[int] = []

    def capture(batch: int) -> BatchPeaks | str:
        assert batch > 0
        assert batch not in tried
        tried.append(batch)
        return BatchPeaks(peak_of(batch), None) if runs(batch) else "an error"

    search = BatchSearch(first, BatchPeaks(peak_of(first), None), capture, most_captures=30)
    search.take(2 * first)
    return search.enclose(memory, None, lambda peaks: peaks.ideal), search


@given(
    weights=st.integers(0, 10**7),
    row=st.integers(1, 10**5),
    padded=st.integers(0, 10**5),
    multiple=st.integers(1, 300),
    largest=st.integers(0, 3000),
    first=st.sampled_from([1, 2, 3, 7, 8, 64]),
)
def test_rows_that_are_padded_to_a_multiple_are_found_exactly(
    weights: int, row: int, padded: int, multiple: int, largest: int, first: int
) -> None:
    def peak_of(batch: int) -> int:
        return weights + row * batch + padded * -(-batch // multiple) * multiple

    found, _ = enclosed(peak_of, peak_of(largest + 1) - 1, first=first)
    least = next(one for one in range(largest, -1, -1) if peak_of(one) < peak_of(largest + 1))
    assert found == BatchRange(least=least, most=least)


def test_memory_in_proportion_takes_few_captures() -> None:
    found, search = enclosed(lambda batch: 1000 + 7 * batch, 9000, first=3)
    assert found == BatchRange(least=1142, most=1142)
    assert search.captured == (6, 384, 1142, 1143)


@pytest.mark.parametrize("groups", [2, 4, 8])
def test_a_model_of_whole_groups_is_enclosed_by_them(groups: int) -> None:
    found, search = enclosed(lambda batch: 10 * batch, 4557, first=groups, runs=lambda batch: batch % groups == 0)
    assert found.least == 455 - 455 % groups
    assert found.most == found.least + groups - 1
    assert search.refused


@pytest.mark.parametrize("most", [2, 3, 64, 1000])
def test_a_model_that_refuses_large_batches_ends_there(most: int) -> None:
    found, search = enclosed(lambda batch: 10 * batch, 10**9, first=1, runs=lambda batch: batch <= most)
    assert found == BatchRange(least=most, most=most)
    assert min(search.refused) == most + 1


def test_captures_that_are_not_made_leave_a_range() -> None:
    search = BatchSearch(2, BatchPeaks(20, None), lambda batch: None if batch > 4 else "", most_captures=30)
    assert search.enclose(1000, 50, lambda peaks: peaks.ideal) == BatchRange(least=2, most=None)
    assert search.captured == ()
