import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.configs.samples import new_tensor, old_tensor
from torchstone.record.ttnn import (
    TtnnMemory,
    TtnnShard,
    TtnnTensor,
    last_word,
    sizes_of,
    ttnn_memory,
    ttnn_tensor,
    ttnn_tensors,
    value_of_text,
)
from torchstone.record.value import Fields, Value, value_from_json


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


DRAM = TtnnMemory(buffer="DRAM", layout="INTERLEAVED")
GRID = [{"start": {"x": 0, "y": 0}, "end": {"x": 7, "y": 7}}]
SHARD = TtnnShard(shape=(32, 32), grid=(((0, 0), (7, 7)),), orientation="ROW_MAJOR")


def memory(shard: Any) -> TtnnMemory:
    found = ttnn_memory(
        value_from_json(
            {
                "memory_layout": "TensorMemoryLayout.WIDTH_SHARDED",
                "buffer_type": "BufferType.L1",
                "shard_spec": shard,
            }
        )
    )
    assert found is not None
    return found


def test_a_tensor_of_a_later_file() -> None:
    assert ttnn_tensor(value_from_json(new_tensor([1, 32], dtype="BFLOAT8_B"))) == TtnnTensor(
        shape=(1, 32),
        dtype="BFLOAT8_B",
        layout="TILE",
        storage="DEVICE",
        memory=DRAM,
        placement="[PlacementShard(2)] on [1, 2]",
    )


def test_a_tensor_of_an_early_file() -> None:
    found = ttnn_tensor(value_from_json(json.loads(old_tensor([4, 5], dtype="FLOAT32"))))

    assert found == TtnnTensor(
        shape=(4, 5),
        dtype="FLOAT32",
        layout="TILE",
        storage="DEVICE",
        memory=TtnnMemory(buffer="L1", layout="INTERLEAVED"),
    )


def test_a_tensor_that_says_little_is_not_filled_up() -> None:
    value = value_from_json({"type": "ttnn.Tensor", "shape": "ttnn.Shape([4, 3])"})

    assert ttnn_tensor(value) == TtnnTensor(shape=(4, 3), dtype="")
    assert ttnn_tensor(value_from_json({"type": "ttnn.Tensor"})) == TtnnTensor(shape=None, dtype="")


def test_a_mesh_of_a_parameter_trace() -> None:
    value = value_from_json(
        {"type": "ttnn.Tensor", "shape": [1], "mesh_device": {"placements": ["PlacementShard(2)"], "shape": [1, 2]}}
    )

    found = ttnn_tensor(value)

    assert found is not None
    assert found.placement == "[PlacementShard(2)] on [1, 2]"


def test_tensors_in_a_list_are_found_in_order() -> None:
    value = value_from_json([new_tensor([1]), 5, [new_tensor([2])]])

    assert [tensor.shape for tensor in ttnn_tensors(value)] == [(1,), (2,)]


@pytest.mark.parametrize("value", [None, 5, "ttnn.Tensor", {"type": "DataType"}, [], {"a": 1}])
def test_anything_else_is_no_tensor(value: object) -> None:
    assert ttnn_tensor(value_from_json(value)) is None
    assert ttnn_memory(value_from_json(value)) is None


@pytest.mark.parametrize(
    "shard",
    [
        {"grid": GRID, "shape": [32, 32], "orientation": "ROW_MAJOR"},
        {"grid": GRID, "shape": "{32, 32}", "orientation": "ShardOrientation::ROW_MAJOR"},
        f"ShardSpec{{grid={json.dumps(GRID)}, shape=[32, 32], orientation=ShardOrientation::ROW_MAJOR}}",
        'ShardSpec{grid=[{"start":{"x":0,"y":0},"end":{"x":7,"y":7}], shape=[32, 32], '
        "orientation=ShardOrientation::ROW_MAJOR}",
    ],
)  # fmt: skip
def test_all_spellings_of_a_shard_mean_the_same(shard: object) -> None:
    assert memory(shard) == TtnnMemory(buffer="L1", layout="WIDTH_SHARDED", shard=SHARD)


@pytest.mark.parametrize("shard", [None, "None", "nullopt", "std::nullopt"])
def test_no_shard_is_no_shard(shard: object) -> None:
    assert memory(shard) == TtnnMemory(buffer="L1", layout="WIDTH_SHARDED")


@pytest.mark.parametrize("shard", ["ShardSpec?", "ShardSpec{grid=[x], shape=[1], orientation=A}", {"grid": 5}])
def test_a_shard_that_cannot_be_read_is_kept_as_text(shard: object) -> None:
    assert memory(shard).shard is None
    assert memory(shard).shard_text


def test_a_memory_configuration_written_as_text() -> None:
    text = "MemoryConfig(memory_layout=TensorMemoryLayout::INTERLEAVED,buffer_type=BufferType::DRAM,shard_spec=None)"

    assert ttnn_memory(value_from_json({"type": "MemoryConfig", "value": text})) == DRAM
    assert ttnn_memory(
        value_from_json({"MemoryConfig": {"memory_layout": "A::B", "buffer_type": "X::L1"}})
    ) == TtnnMemory(buffer="L1", layout="B")


@pytest.mark.parametrize(
    ("value", "sizes"),
    [
        ([1, 2], (1, 2)),
        ("Shape([1, 32])", (1, 32)),
        ("ttnn.Shape([4])", (4,)),
        ("{32, 32}", (32, 32)),
        ("[0, -1]", (0, -1)),
        ({"type": "Shape", "value": "Shape([2])"}, (2,)),
        ("x", None),
        ([1.5], None),
        (7, None),
    ],
)
def test_sizes_are_read_from_lists_and_texts(value: object, sizes: tuple[int, ...] | None) -> None:
    assert sizes_of(value_from_json(value)) == sizes


@pytest.mark.parametrize(
    ("value", "word"),
    [("DataType::BFLOAT16", "BFLOAT16"), ("Layout.TILE", "TILE"), ({"type": "T", "repr": "T.A"}, "A"), (5, "")],
)
def test_the_last_word_of_a_name(value: object, word: str) -> None:
    assert last_word(value_from_json(value)) == word


def test_fields_of_another_class_are_no_tensor() -> None:
    value: Value = Fields(class_name="Other", fields=(("shape", "[1]"),))

    assert ttnn_tensor(value) is None
