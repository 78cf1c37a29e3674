from typing import Any

import pytest

from torchstone.backends.ttnn.recipes import is_ttnn, lost_arguments, recipe_of
from torchstone.record.config import Configuration
from torchstone.record.value import Argument, Opaque, entries_from_json, value_from_json


def recipe(op: str = "ttnn.add", **arguments: Any) -> dict[str, Any]:
    named = tuple(Argument(name=name, value=value_from_json(value)) for name, value in arguments.items())
    return recipe_of(Configuration(op=op, arguments=named))


def node(value: Any) -> Any:
    return recipe(arg0=value)["positional"][0]


SHARDED = {
    "memory_layout": "TensorMemoryLayout.WIDTH_SHARDED", "buffer_type": "BufferType.L1", "hash": 2**63 + 5,
    "shard_spec": {"grid": [{"start": {"x": 0, "y": 0}, "end": {"x": 7, "y": 0}}], "shape": [32, 32],
                   "orientation": "ROW_MAJOR"},
}  # fmt: skip
TENSOR = {"type": "ttnn.Tensor", "original_shape": [1, 1, 32, 256], "original_dtype": "DataType.BFLOAT8_B",
          "layout": "Layout.TILE", "storage_type": "StorageType.DEVICE", "memory_config": SHARDED}  # fmt: skip
NESTED = {"Tensor": {"storage": {}, "layout": "Layout::ROW_MAJOR", "storage_type": "StorageType::HOST", "tensor_spec": {
    "logical_shape": [3, 5], "tensor_layout": {"dtype": "DataType::FLOAT32", "alignment": [1], "memory_config": {
        "memory_layout": "TensorMemoryLayout::INTERLEAVED", "buffer_type": "BufferType::DRAM",
        "shard_spec": "std::nullopt"}}}}}  # fmt: skip


def test_a_tensor_of_a_later_file_keeps_its_shard() -> None:
    tensor = node(TENSOR)["tensor"]

    assert (tensor["shape"], tensor["dtype"], tensor["layout"]) == ([1, 1, 32, 256], "BFLOAT8_B", "TILE")
    shard = tensor["memory"]["shard"]
    assert shard == {"shape": [32, 32], "grid": [[[0, 0], [7, 0]]], "orientation": "ROW_MAJOR"}


def test_a_tensor_of_an_early_file_in_host_memory() -> None:
    tensor = node(NESTED)["tensor"]

    assert (tensor["shape"], tensor["dtype"], tensor["storage"]) == ([3, 5], "FLOAT32", "HOST")
    assert recipe(arg0=NESTED)["cpp"]
    assert not recipe(arg0=TENSOR)["cpp"]


def test_a_tensor_in_a_list_of_an_early_file_has_the_layout_of_its_alignment() -> None:
    inner = {**NESTED["Tensor"]}
    del inner["layout"]
    rows = node([inner])["list"][0]["tensor"]
    laid_out = {"dtype": "DataType::BFLOAT16", "alignment": [32, 32]}
    tiles = inner | {"tensor_spec": {"logical_shape": [32, 32], "tensor_layout": laid_out}}

    assert rows["layout"] == "ROW_MAJOR"
    assert node([tiles])["list"][0]["tensor"]["layout"] == "TILE"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("nullopt", None),
        ("None", None),
        ("3", 3),
        ("1e-05", 1e-05),
        ("-inf", {"number": "-inf"}),
        ("False", False),
        ("DataType::BFLOAT16", {"enum": ["DataType", "BFLOAT16"]}),
        ({"type": "Layout", "repr": "Layout.TILE"}, {"enum": ["Layout", "TILE"]}),
        ("[3, 3]", {"list": [3, 3]}),
        ("[[0, 0], [0, 13]]", {"list": [{"list": [0, 0]}, {"list": [0, 13]}]}),
        ({"type": "Shape", "value": "Shape([1, 32])"}, {"shape": [1, 32]}),
        ({"Shape": [1, 32]}, {"shape": [1, 32]}),
        ({"type": "set", "value": "{MeshCoordinate([2, 2])}"}, {"coordinates": [[2, 2]]}),
        ({"type": "Tile", "value": "Tile with shape: [32, 16]"}, {"tile": [32, 16]}),
        ({"type": "MeshDevice", "repr": "MeshDevice(4x8 grid)", "shape": [4, 8]}, {"device": True}),
        ("8-7", {"object": ["CoreCoord", {"x": 8, "y": 7}]}),
        ("(x=4,y=7)", {"object": ["CoreCoord", {"x": 4, "y": 7}]}),
        ("gelu", "gelu"),
        ({"type": "torch.Tensor", "shape": [2], "dtype": "torch.float32"}, {"torch": True}),
    ],
)
def test_a_value_becomes_one_form(value: object, expected: object) -> None:
    assert node(value) == expected


def test_a_program_configuration_written_as_text_keeps_its_fields() -> None:
    text = "SDPAProgramConfig(compute_with_storage_grid_size=8-8, sub_core_grids=std::nullopt, q_chunk_size=64)"
    name, fields = node({"type": "SDPAProgramConfig", "value": text})["object"]

    assert name == "SDPAProgramConfig"
    assert fields["compute_with_storage_grid_size"] == {"object": ["CoreCoord", {"x": 8, "y": 8}]}
    assert (fields["sub_core_grids"], fields["q_chunk_size"]) == (None, 64)


def test_what_a_trace_lost_is_named_and_a_handle_is_not_lost() -> None:
    lost = recipe(
        arg0=TENSOR, arg1="[ unsupported type , std::optional<Conv2dConfig>]", arg2="[ unsupported type , MeshDevice*]"
    )
    semaphore = Argument(name="arg3", value=Opaque(class_name="x", text='{"arg3": {"GlobalSemaphore":{...}}}'))
    made = recipe_of(Configuration(op="ttnn.x", arguments=(semaphore,)))

    assert lost_arguments(lost) == ["arg1"]
    assert lost["positional"][2] == {"device": True}
    assert lost_arguments(made) == []
    assert made["positional"] == [{"gap": True}, {"gap": True}, {"gap": True}, {"semaphore": True}]


def test_the_machine_of_a_configuration_is_kept() -> None:
    machine = entries_from_json({"device_series": "n300", "mesh_device_shape": [1, 2]})

    assert recipe_of(Configuration(op="ttnn::add", machine=machine))["machine"]["mesh_device_shape"] == [1, 2]
    assert is_ttnn("ttnn::add")
    assert not is_ttnn("aten.add.Tensor")
