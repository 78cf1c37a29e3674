import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from torchstone.sweep import master_config_loader
from torchstone.sweep.master_config_loader import dtype_of, layout_of, memory_config_of, plain_value, tensor_in

SHARDED = {
    "memory_layout": "TensorMemoryLayout.WIDTH_SHARDED",
    "buffer_type": "BufferType.L1",
    "hash": 16802199791220172571,
    "shard_spec": {
        "grid": [{"start": {"x": 0, "y": 0}, "end": {"x": 7, "y": 7}}],
        "shape": [32, 32],
        "orientation": "ROW_MAJOR",
    },
}


class Called:
    """Remembers how a type of ttnn was made."""

    def __init__(self, *given: Any) -> None:
        self.given = given


@pytest.fixture
def ttnn(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A stand-in with the names that ttnn has."""
    made = SimpleNamespace(
        bfloat8_b="ttnn.bfloat8_b",
        TILE_LAYOUT="ttnn.TILE",
        MemoryConfig=Called,
        ShardSpec=Called,
        CoreRange=Called,
        CoreCoord=Called,
        CoreRangeSet=Called,
        TensorMemoryLayout=SimpleNamespace(WIDTH_SHARDED="width", INTERLEAVED="interleaved"),
        BufferType=SimpleNamespace(L1="l1", DRAM="dram"),
        ShardOrientation=SimpleNamespace(ROW_MAJOR="rows"),
    )
    monkeypatch.setattr(master_config_loader, "_ttnn", lambda: made)
    return made


@pytest.mark.parametrize(
    ("text", "dtype"),
    [("DataType.BFLOAT16", torch.bfloat16), ("DataType::UINT32", torch.uint32), ("float32", torch.float32)],
)
def test_element_types_are_those_of_torch(text: str, dtype: torch.dtype) -> None:
    assert dtype_of(text) is dtype


def test_an_element_type_that_torch_does_not_have_stays_what_it_is() -> None:
    assert dtype_of("DataType::BFLOAT8_B") == "BFLOAT8_B"


@pytest.mark.usefixtures("ttnn")
def test_ttnn_comes_first_where_it_is_there() -> None:
    assert dtype_of("DataType.BFLOAT8_B") == "ttnn.bfloat8_b"
    assert layout_of("Layout.TILE") == "ttnn.TILE"


@pytest.mark.usefixtures("ttnn")
def test_a_sharded_memory_configuration_is_made_with_its_grid() -> None:
    made = memory_config_of(SHARDED)

    assert made.given[:2] == ("width", "l1")
    ranges, shape, orientation = made.given[2].given
    (core_range,) = ranges.given[0]
    assert [corner.given for corner in core_range.given] == [(0, 0), (7, 7)]
    assert (shape, orientation) == ([32, 32], "rows")


@pytest.mark.usefixtures("ttnn")
def test_the_grids_of_2025_are_read_too() -> None:
    spec = {
        "grid": [{"x": 0, "y": 0}, {"x": 7, "y": 6}],
        "shape": "{224, 32}",
        "orientation": "ShardOrientation::ROW_MAJOR",
    }
    made = memory_config_of({**SHARDED, "shard_spec": spec}).given[2]

    (core_range,) = made.given[0].given[0]
    assert [corner.given for corner in core_range.given] == [(0, 0), (7, 6)]
    assert made.given[1] == [224, 32]


def test_without_ttnn_a_memory_configuration_is_a_dictionary_without_its_hash() -> None:
    assert "ttnn" not in sys.modules
    assert memory_config_of(SHARDED) == {name: value for name, value in SHARDED.items() if name != "hash"}


def test_a_tensor_is_told_from_other_values() -> None:
    aten = tensor_in({"type": "tensor", "shape": [2, 3], "dtype": "float32", "stride": [3, 1]})

    assert aten is not None
    assert (aten.shape, aten.memory_config) == ([2, 3], {"stride": [3, 1], "storage_offset": 0})
    assert tensor_in({"type": "DataType", "repr": "DataType.BFLOAT16"}) is None
    assert tensor_in(3) is None


def test_plain_values_keep_what_they_are() -> None:
    assert plain_value({"type": "DataType", "repr": "DataType.FLOAT32"}) is torch.float32
    assert plain_value([1, 2]) == [1, 2]
    assert plain_value({"type": "Topology", "repr": "Ring"}) == {"type": "Topology", "repr": "Ring"}
