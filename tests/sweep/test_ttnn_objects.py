import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from torchstone.sweep import ttnn_objects
from torchstone.sweep.traced_rows import tensor_in
from torchstone.sweep.ttnn_objects import (
    dict_to_compute_kernel_config,
    dict_to_core_grid,
    dict_to_memory_config,
    dict_to_program_config,
    parse_dtype,
    parse_enum_value,
    parse_layout,
)

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

    def __init__(self, *given: Any, **named: Any) -> None:
        self.given, self.named = given, named


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
        MathFidelity=SimpleNamespace(LoFi="lofi"),
        Topology=SimpleNamespace(Ring="ring"),
        CoreGrid=Called,
        UnaryOpType=int,
        UnaryWithParam=Called,
        WormholeComputeKernelConfig=Called,
        SDPAProgramConfig=Called,
        MatmulMultiCoreReuseMultiCast1DProgramConfig=Called,
    )
    monkeypatch.setattr(ttnn_objects, "ttnn_module", lambda: made)
    return made


@pytest.mark.parametrize(
    ("text", "dtype"),
    [("DataType.BFLOAT16", torch.bfloat16), ("DataType::UINT32", torch.uint32), ("float32", torch.float32)],
)
def test_element_types_are_those_of_torch(text: str, dtype: torch.dtype) -> None:
    assert parse_dtype(text) is dtype


def test_an_element_type_that_torch_does_not_have_stays_what_it_is() -> None:
    assert parse_dtype("DataType::BFLOAT8_B") == "BFLOAT8_B"


@pytest.mark.usefixtures("ttnn")
def test_ttnn_comes_first_where_it_is_there() -> None:
    assert parse_dtype("DataType.BFLOAT8_B") == "ttnn.bfloat8_b"
    assert parse_layout("Layout.TILE") == "ttnn.TILE"


@pytest.mark.usefixtures("ttnn")
def test_a_sharded_memory_configuration_is_made_with_its_grid() -> None:
    made = dict_to_memory_config(SHARDED)

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
    made = dict_to_memory_config({**SHARDED, "shard_spec": spec}).given[2]

    (core_range,) = made.given[0].given[0]
    assert [corner.given for corner in core_range.given] == [(0, 0), (7, 6)]
    assert made.given[1] == [224, 32]


def test_without_ttnn_a_memory_configuration_is_a_dictionary_without_its_hash() -> None:
    assert "ttnn" not in sys.modules
    assert dict_to_memory_config(SHARDED) == {name: value for name, value in SHARDED.items() if name != "hash"}


def test_a_tensor_is_told_from_other_values() -> None:
    aten = tensor_in({"type": "tensor", "shape": [2, 3], "dtype": "float32", "stride": [3, 1]})

    assert aten is not None
    assert (aten.shape, aten.memory_config) == ([2, 3], {"stride": [3, 1], "storage_offset": 0})
    assert tensor_in({"type": "DataType", "repr": "DataType.BFLOAT16"}) is None
    assert tensor_in(3) is None


def test_descriptions_of_enums_become_constants_and_others_stay() -> None:
    assert parse_enum_value({"type": "DataType", "repr": "DataType.FLOAT32"}) is torch.float32
    assert parse_enum_value([1, 2]) == [1, 2]
    assert parse_enum_value({"type": "Topology", "repr": "Ring"}) == {"type": "Topology", "repr": "Ring"}


@pytest.mark.usefixtures("ttnn")
def test_program_configurations_are_made_from_their_fields_or_from_their_text() -> None:
    text = (
        "SDPAProgramConfig(compute_with_storage_grid_size=8-8, sub_core_grids={[1-0 - 3-9], [5-0 - 6-9]}, "
        "q_chunk_size=64, k_chunk_size=128, exp_approx_mode=0, max_cores_per_head_batch=16)"
    )
    made = dict_to_program_config({"type": "SDPAProgramConfig", "value": text}).named
    grid, ranges = made.pop("compute_with_storage_grid_size"), made.pop("sub_core_grids")
    assert (grid.given, len(ranges.given[0])) == ((8, 8), 2)
    sizes = {"q_chunk_size": 64, "k_chunk_size": 128, "max_cores_per_head_batch": 16}
    assert made == {**sizes, "exp_approx_mode": False}

    fields = {
        "type": "MatmulMultiCoreReuseMultiCast1DProgramConfig",
        "compute_with_storage_grid_size": {"x": 8, "y": 4},
        "in0_block_w": 2,
        "per_core_M": 1,
        "per_core_N": 4,
        "fuse_batch": True,
        "fused_activation": {"op_type": 2, "param": [1.0]},
        "hop_cores": [],
        "num_global_cb_receivers": 1,
    }
    made = dict_to_program_config(fields).named
    assert (made["per_core_N"], made["fused_activation"].given) == (4, (2, 1.0))
    assert "num_global_cb_receivers" not in made
    del fields["type"]
    assert dict_to_program_config(fields).named["fuse_batch"] is True


@pytest.mark.usefixtures("ttnn")
def test_kernel_configurations_and_grids_are_made_from_what_was_recorded_alone() -> None:
    made = dict_to_compute_kernel_config({"math_fidelity": "MathFidelity.LoFi", "packer_l1_acc": "False"})
    assert made.named == {"math_fidelity": "lofi", "packer_l1_acc": False}
    grid = dict_to_core_grid({"type": "CoreGrid", "value": "ttnn.CoreGrid(x=8, y=7)"})
    assert grid.named == {"x": 8, "y": 7}


@pytest.mark.usefixtures("ttnn")
def test_what_cannot_be_read_is_an_error_and_never_a_default() -> None:
    with pytest.raises(ValueError, match="not a known program configuration: NewProgramConfig"):
        dict_to_program_config({"type": "NewProgramConfig", "blocks": 1})
    with pytest.raises(ValueError, match="does not name a core grid"):
        dict_to_core_grid("eight by eight")
    with pytest.raises(ValueError, match=r"ttnn\.TensorMemoryLayout has no 'DIAGONAL'"):
        dict_to_memory_config({"memory_layout": "DIAGONAL", "buffer_type": "L1"})


@pytest.mark.parametrize(
    "convert", [dict_to_memory_config, dict_to_program_config, dict_to_compute_kernel_config, dict_to_core_grid]
)
def test_objects_and_none_stay_what_they_are(convert: Any) -> None:
    thing = object()
    assert convert(None) is None
    assert convert(thing) is thing
