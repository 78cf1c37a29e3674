import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchstone.record.ttnn import value_of_text
from torchstone.record.value import Fields


def test_an_object_with_named_parts_is_taken_apart() -> None:
    text = (
        "MemoryConfig(memory_layout=TensorMemoryLayout::INTERLEAVED,shard_spec=ShardSpec(grid=[(1, 2)], shape={1, 2}))"
    )

    shard = Fields(class_name="ShardSpec", fields=(("grid", "[(1, 2)]"), ("shape", "{1, 2}")))
    assert value_of_text(text) == Fields(
        class_name="MemoryConfig", fields=(("memory_layout", "TensorMemoryLayout::INTERLEAVED"), ("shard_spec", shard))
    )


@pytest.mark.parametrize("text", ["", "5", "Shape([1, 32])", "MemoryConfig(...)", "f()", "a=b", "x(a=1, 2)", "x(a=(1)"])
def test_any_other_text_stays_as_it_is(text: str) -> None:
    assert value_of_text(text) == text


@given(st.text("ab(),=[]{}<> ", max_size=30))
def test_no_text_is_too_much(text: str) -> None:
    assert isinstance(value_of_text(text), str | Fields)
