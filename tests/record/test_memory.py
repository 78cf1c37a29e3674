from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchstone.record.codec import decode, encode
from torchstone.record.memory import Buffer, IntColumn, MemoryState, MemoryTimeline, OpCall, OpTable


@given(st.lists(st.integers(min_value=-(2**31), max_value=2**31 - 1)))
def test_a_column_gives_back_its_numbers(numbers: list[int]) -> None:
    column = IntColumn.of(numbers)

    assert column.values().tolist() == numbers
    assert len(column) == len(numbers)


def test_a_column_of_an_array_keeps_its_width() -> None:
    assert IntColumn.of(array("q", [1 << 40])).values().tolist() == [1 << 40]
    assert IntColumn.of(array("b", [3])).width_bytes == 1


def test_a_timeline_survives_its_file() -> None:
    unknown = IntColumn.of([-1, -1])
    ops = OpTable(
        calls=IntColumn.of([0, -1]), op_types=unknown, programs=unknown, snapshots=unknown,
        lines=IntColumn.of([1, 2], width_bytes=8), flags=IntColumn.of([0, 0], width_bytes=1),
    )  # fmt: skip
    timeline = MemoryTimeline(dialect="x", ops=ops, calls=(OpCall(name="ttnn.add"),))

    assert decode(encode(timeline), MemoryTimeline, origin="here") == timeline


def test_fragmentation_is_the_free_space_outside_the_largest_block() -> None:
    state = MemoryState(banks=12, capacity=1000, allocated=600, free=400, largest_free=100)

    assert state.fragmentation == 0.75


def test_a_full_memory_has_no_fragmentation() -> None:
    assert MemoryState(banks=12, capacity=0, allocated=0, free=0, largest_free=0).fragmentation is None


def buffer(**more: object) -> Buffer:
    fields = {"memory": "DRAM", "dtype": "bf16", "tiled": True, "sharding": "interleaved"}
    fields |= {"padded_bytes": 58720256, "page_bytes": 2048, "pages": 28672} | more
    return Buffer(**fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("held", "banks", "expected"),
    [
        (buffer(), 12, 4894720),  # as a real out-of-memory line has it
        (buffer(sharding="block_sharded", pages=64), 64, 64 * 2048),
        (buffer(tiled=False, page_bytes=10, pages=13), 12, 2 * 32),
    ],
)
def test_bytes_per_bank_follow_the_allocator(held: Buffer, banks: int, expected: int) -> None:
    assert held.bank_bytes(banks=banks) == expected


def test_a_call_reads_like_its_text() -> None:
    call = OpCall(name="ttcore.load_cached", results=("%0",), operands=("%arg2",), callee="main_const_eval_0")

    assert str(call) == "%0 = ttcore.load_cached(@main_const_eval_0, %arg2)"
