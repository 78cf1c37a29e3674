"""Small files of other tools, written by hand in their formats."""

import json
from typing import Any

JsonObject = dict[str, Any]

SOURCE = "models/demo.py::test_demo [HF_MODEL:acme/Tiny-1B]"
MACHINE: JsonObject = {"board_type": "Wormhole", "device_series": "n300", "card_count": 1, "mesh_device_shape": [1, 2]}
ONE_RANGE = '[{"x":0,"y":0} - {"x":7,"y":6}]'
TWO_RANGES = '{[{"x":0,"y":0} - {"x":7,"y":7}], [{"x":0,"y":8} - {"x":3,"y":8}]}'


def old_tensor(shape: list[int], *, dtype: str = "BFLOAT16", shard: str | None = None) -> str:
    """A tensor of an early master file, as text; with a shard it is no JSON any more."""
    layout = "HEIGHT_SHARDED" if shard else "INTERLEAVED"
    spec = (
        f'{{"grid":{shard},"shape":"{{224, 32}}","orientation":"ShardOrientation::ROW_MAJOR"}}'
        if shard
        else '"std::nullopt"'
    )
    return (
        f'{{"Tensor":{{"storage":{{}},"tensor_spec":{{"logical_shape":{json.dumps(shape)},"tensor_layout":'
        f'{{"dtype":"DataType::{dtype}","memory_config":{{"memory_layout":"TensorMemoryLayout::{layout}",'
        f'"buffer_type":"BufferType::L1","shard_spec":{spec}}}}}}},'
        '"storage_type":"StorageType::DEVICE","layout":"Layout::TILE"}}'
    )


def unparsed(text: str) -> JsonObject:
    return {"UnparsedElement": {"error": "Expecting ',' delimiter", "element_info": text}}


def sharded_argument(shard: str = ONE_RANGE) -> JsonObject:
    return unparsed(f'{{"arg0": {old_tensor([1, 1, 12544, 32], dtype="BFLOAT8_B", shard=shard)}}}')


def old_arguments() -> list[JsonObject]:
    return [{"arg0": json.loads(old_tensor([1, 32]))}, {"arg1": "nullopt"}, {"arg2": "[0, 2, 3, 1]"}, {"arg3": "0"}]


def master_v1(*configurations: JsonObject, op: str = "ttnn::add") -> JsonObject:
    return {"operations": {op: {"configurations": list(configurations)}}, "metadata": {"models": [SOURCE]}}


def new_tensor(shape: list[int], *, dtype: str = "BFLOAT16", placement: str = "PlacementShard(2)") -> JsonObject:
    return {
        "type": "ttnn.Tensor",
        "original_shape": shape,
        "original_dtype": f"DataType.{dtype}",
        "layout": "Layout.TILE",
        "storage_type": "StorageType.DEVICE",
        "memory_config": {
            "memory_layout": "TensorMemoryLayout.INTERLEAVED",
            "buffer_type": "BufferType.DRAM",
            "shard_spec": None,
            "is_sharded": False,
            "interleaved": True,
            "hash": 16802199791220172571,
        },
        "tensor_placement": {
            "placement": f"['{placement}']",
            "distribution_shape": "[2]",
            "mesh_device_shape": "[1, 2]",
        },
    }


def execution(*, count: int = 12, machine: JsonObject = MACHINE, **more: Any) -> JsonObject:
    return {"source": SOURCE, "machine_info": machine, "count": count, **more}


def entry_v2(arguments: JsonObject, **more: Any) -> JsonObject:
    return {"config_id": 7, "arguments": arguments, "executions": [execution()], **more}


def master_v2(*entries: JsonObject, op: str = "ttnn.add") -> JsonObject:
    return {"operations": {op: {"configurations": list(entries)}}, "metadata": {"models": [SOURCE]}}


ATEN_TEXT = """\
Operator: aten.addmm.default
cnt: 49, ((T([768], f16), T([8192, 768], f16), T([768, 768], f16, stride=(1, 768))), {})
Operator: aten._to_copy.default
cnt: 1, ((T([64, 1, 1, 128], f32),), {'dtype': f16})
cnt: 3, ((T([2], b8),), {'dtype': torch.bool, 'layout': torch.strided, 'device': "torch.device('cpu')"})
Operator: aten._to_copy.default
cnt: 2, ((T([64, 1, 1, 128], f32),), {'dtype': f16})
Operator: aten.masked_fill.Scalar
cnt: 24, ((T([2, 3], f16), T([2, 3], b8), -inf), {})
"""
