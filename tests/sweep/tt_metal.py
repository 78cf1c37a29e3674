"""Sweep modules as tt-metal's guide describes them, and a ttnn that has only the names of its enums."""

from pathlib import Path

TTNN = """
from enum import Enum

DataType = Enum("DataType", "BFLOAT16 FLOAT32 UINT32 BFLOAT8_B UINT16 INT32 UINT8 BFLOAT4_B")
Layout = Enum("Layout", "ROW_MAJOR TILE")
BufferType = Enum("BufferType", "DRAM L1")
TensorMemoryLayout = Enum("TensorMemoryLayout", "INTERLEAVED HEIGHT_SHARDED WIDTH_SHARDED BLOCK_SHARDED")
ShardOrientation = Enum("ShardOrientation", "ROW_MAJOR COL_MAJOR")
MathFidelity = Enum("MathFidelity", "LoFi HiFi2 HiFi3 HiFi4")
Topology = Enum("Topology", "Ring Linear")
globals().update({one.name.lower(): one for one in DataType})
TILE_LAYOUT, ROW_MAJOR_LAYOUT = Layout.TILE, Layout.ROW_MAJOR
DRAM_MEMORY_CONFIG = "DRAM"
"""

OBJECTS = """

class _Object:
    def __init__(self, *given, **named):
        self.given, self.named = given, named

    def __eq__(self, other):
        return type(self) is type(other) and (self.given, self.named) == (other.given, other.named)

    def __repr__(self):
        return f"{type(self).__name__}({self.given}, {self.named})"


for _name in (
    "MemoryConfig ShardSpec CoreRange CoreCoord CoreRangeSet CoreGrid WormholeComputeKernelConfig UnaryOpType"
    " UnaryWithParam MatmulMultiCoreReuseMultiCast1DProgramConfig MatmulMultiCoreReuseMultiCastProgramConfig"
    " MatmulMultiCoreReuseProgramConfig MatmulMultiCoreReuseMultiCastDRAMShardedProgramConfig SDPAProgramConfig"
    " LayerNormShardedMultiCoreProgramConfig LayerNormDefaultProgramConfig SoftmaxDefaultProgramConfig"
).split():
    globals()[_name] = type(_name, (_Object,), {})
"""

UNARY = """
from tests.sweep_framework.master_config_loader import MasterConfigLoader, unpack_traced_config

loader = MasterConfigLoader()
model_traced_params = loader.get_suite_parameters("{op}")

parameters = {{
    "nightly": {{"input_shape": [(1, 1, 32, 32)], "input_a_dtype": ["bf16"]}},
    "model_traced": model_traced_params,
}}


def run(
    input_shape=None,
    input_a_dtype=None,
    input_a_layout=None,
    input_a_memory_config=None,
    output_memory_config=None,
    traced_config_name=None,
    *,
    device,
):
    given = (input_shape, input_a_dtype, input_a_layout, input_a_memory_config, output_memory_config)
    if traced_config_name:
        input_shape, input_a_dtype, input_a_layout, input_a_memory_config, output_memory_config = (
            unpack_traced_config(traced_config_name)
        )
        assert (tuple(input_shape), input_a_dtype, input_a_layout) == given[:3]
        assert (input_a_memory_config, output_memory_config) == given[3:]
        assert all(one is not None for one in given)
    return True, "1.0"
"""

BINARY = """
from tests.sweep_framework.master_config_loader import MasterConfigLoader, unpack_binary_traced_config

loader = MasterConfigLoader()
parameters = {{"model_traced": loader.get_suite_parameters("{op}")}}


def run(
    input_shape=None,
    input_a_dtype=None,
    input_b_dtype=None,
    input_a_layout=None,
    input_b_layout=None,
    input_a_memory_config=None,
    input_b_memory_config=None,
    traced_config_name=None,
    *,
    device,
):
    given = (input_a_dtype, input_b_dtype, input_a_layout, input_b_layout, input_a_memory_config, input_b_memory_config)
    shapes, *properties = unpack_binary_traced_config(traced_config_name)
    assert {{name: tuple(shape) for name, shape in shapes.items()}} == input_shape
    assert tuple(properties) == given
    return [(True, "1.0"), 1000]
"""


def write_stub(folder: Path, *, with_objects: bool = False) -> None:
    """A ttnn in a folder of the import path."""
    (folder / "ttnn.py").write_text(TTNN + (OBJECTS if with_objects else ""), encoding="utf-8")
