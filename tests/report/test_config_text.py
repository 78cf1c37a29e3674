import json

import pytest

from tests.configs.samples import ONE_RANGE, new_tensor, old_tensor, sharded_argument
from torchstone.backends.ttnn_trace_text import UNPARSED
from torchstone.configs.ttnn_master import repaired_argument
from torchstone.record.tensor import TensorSpec
from torchstone.record.value import Atom, Entries, Fields, Items, Opaque, Value, value_from_json
from torchstone.report.ops_text import config_value_text


def test_a_sharded_tensor_reads_as_kernel_people_write_it() -> None:
    argument, _ = repaired_argument(sharded_argument(ONE_RANGE)[UNPARSED], position=0)

    assert f"{argument.name}: {config_value_text(argument.value)}" == (
        "arg0: Tensor(shape=[1, 1, 12544, 32], dtype=BFLOAT8_B, memory=L1_HEIGHT_SHARDED, "
        "shard(shard_shape=[224, 32], grid=[(0,0)->(7,6)], orientation=ROW_MAJOR))"
    )


@pytest.mark.parametrize(
    ("document", "text"),
    [
        (json.loads(old_tensor([1, 32])), "Tensor(shape=[1, 32], dtype=BFLOAT16, memory=L1_INTERLEAVED)"),
        (
            new_tensor([1, 32]),
            "Tensor(shape=[1, 32], dtype=BFLOAT16, memory=DRAM_INTERLEAVED, placement=[PlacementShard(2)] on [1, 2])",
        ),
        (
            {"type": "ttnn.Tensor", "layout": "Layout.ROW_MAJOR", "storage_type": "StorageType.HOST"},
            "Tensor(shape=?, dtype=?, layout=ROW_MAJOR, storage=HOST)",
        ),
        ({"type": "DataType", "repr": "DataType.BFLOAT16"}, "DataType.BFLOAT16"),
        ({"type": "Shape", "value": "Shape([1, 32])"}, "Shape([1, 32])"),
        ({"Shape": [1, 32]}, "Shape([1, 32])"),
        ({"type": "MatmulConfig", "in0_block_w": 2, "fuse": None}, "MatmulConfig(fuse=None, in0_block_w=2)"),
        ({"Config": {"math": "LoFi", "acc": 1}}, "Config(acc=1, math=LoFi)"),
        ({"b": 1, "a": [True, "x"]}, "{a=[True, x], b=1}"),
        ({"memory_layout": "M.WIDTH_SHARDED", "buffer_type": "B.L1", "shard_spec": "?"},
         "MemoryConfig(memory=L1_WIDTH_SHARDED, shard(?))"),
    ],
)  # fmt: skip
def test_values_of_master_files(document: object, text: str) -> None:
    assert config_value_text(value_from_json(document)) == text


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (TensorSpec(shape=(2, 3), dtype="float32", stride=(3, 1)), "Tensor(shape=[2, 3], dtype=float32)"),
        (
            TensorSpec(shape=(2, 3), dtype="float32", stride=(1, 2), storage_offset=4, requires_grad=True),
            "Tensor(shape=[2, 3], dtype=float32, stride=[1, 2], offset=4, requires_grad=True)",
        ),
        (
            TensorSpec(shape=(), dtype="int8", layout="sparse_coo", device="cuda:0", subclass="x.Packed"),
            "Tensor(shape=[], dtype=int8, layout=sparse_coo, device=cuda:0, class=x.Packed)",
        ),
    ],
)
def test_our_own_tensors_say_only_what_is_not_usual(spec: TensorSpec, text: str) -> None:
    assert config_value_text(spec) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "None"),
        (0.5, "0.5"),
        ("nullopt", "nullopt"),
        (Atom(kind="dtype", text="float16"), "float16"),
        (Opaque(class_name="X", text="{...}"), "{...}"),
        (Items(kind="tuple", items=(1, 2)), "(1, 2)"),
        (Fields(class_name="Pair", fields=(("a", 1),)), "Pair(a=1)"),
        (Entries(), "{}"),
    ],
)
def test_other_values(value: Value, text: str) -> None:
    assert config_value_text(value) == text
