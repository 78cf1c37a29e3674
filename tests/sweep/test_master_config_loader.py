import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.sweep.builders import mm, seen
from tests.sweep.test_master_entries import V1_TENSOR, file_with, v1
from torchstone.store.database import Store
from torchstone.sweep import MasterConfigLoader, master_config_loader, unpack_binary_traced_config, unpack_traced_config
from torchstone.sweep.master_config_loader import (
    UnknownOpError,
    dtype_of,
    layout_of,
    memory_config_of,
    plain_value,
    tensor_in,
)

UNARY = "input_shape,input_a_dtype,input_a_layout,input_a_memory_config,output_memory_config,storage_type"
BINARY = (
    "input_shape,input_a_dtype,input_b_dtype,input_a_layout,input_b_layout,input_a_memory_config,"
    "input_b_memory_config,output_memory_config"
)
DRAM = {"memory_layout": "TensorMemoryLayout.INTERLEAVED", "buffer_type": "BufferType.DRAM"}
V2_TENSOR = {
    "type": "ttnn.Tensor",
    "original_shape": [1, 1, 32, 64],
    "original_dtype": "DataType.BFLOAT16",
    "layout": "Layout.TILE",
    "storage_type": "StorageType.DEVICE",
    "memory_config": DRAM,
}
PLACES = (parent / "shared" / "data" / "ttnn" for parent in Path(__file__).parents[3:])
DATA = next((place for place in PLACES if place.is_dir()), None)


def v2(*sources: str, **arguments: object) -> dict[str, object]:
    return {"arguments": arguments, "config_hash": "abc", "executions": [{"source": source} for source in sources]}


@pytest.fixture
def old(tmp_path: Path) -> MasterConfigLoader:
    """A file of 2025."""
    return MasterConfigLoader(
        file_with(
            tmp_path,
            {
                "ttnn::silu": {"configurations": [v1({"arg0": V1_TENSOR}, {"arg1": "nullopt"})]},
                "ttnn::add": {"configurations": [v1({"arg0": V1_TENSOR}, {"arg1": V1_TENSOR}, {"arg2": "1"})] * 2},
                "ttnn::permute": {"configurations": [v1({"arg0": V1_TENSOR}, {"arg1": "[1, 0]"})]},
            },
        )
    )


def test_one_tensor_gives_the_known_key_and_a_tuple_for_each_call(old: MasterConfigLoader) -> None:
    ((key, rows),) = old.get_suite_parameters("silu", all_cases=False).items()

    assert key == UNARY
    memory = {"memory_layout": "TensorMemoryLayout::INTERLEAVED", "buffer_type": "BufferType::DRAM"}
    assert rows == [([1, 32], torch.bfloat16, "TILE", memory, memory, "StorageType::DEVICE")]


def test_two_tensors_give_both_shapes_under_one_name(old: MasterConfigLoader) -> None:
    ((key, rows),) = old.get_suite_parameters("add").items()

    assert key == BINARY
    assert rows[0][0] == {"self": [1, 32], "other": [1, 32]}
    assert len(rows) == 2


def test_arguments_that_sweep_modules_know_have_their_names(old: MasterConfigLoader) -> None:
    ((key, rows),) = old.get_suite_parameters("permute").items()

    assert key == f"{UNARY},dims"
    assert rows[0][-1] == [1, 0]


def test_all_cases_gives_a_list_for_each_name(old: MasterConfigLoader) -> None:
    parameters = old.get_suite_parameters("add", all_cases=True)

    assert list(parameters) == BINARY.split(",")
    assert [len(values) for values in parameters.values()] == [1] * 8


def test_a_traced_configuration_is_unpacked_by_its_name(old: MasterConfigLoader) -> None:
    old.get_suite_parameters("silu")
    old.get_suite_parameters("add")

    shape, dtype, layout, memory, output = unpack_traced_config("silu_traced_0")
    assert (shape, dtype, layout, memory == output) == ([1, 32], torch.bfloat16, "TILE", True)
    both = unpack_binary_traced_config("add_traced_1")
    assert (both[0], len(both)) == ({"self": [1, 32], "other": [1, 32]}, 7)


def test_a_name_or_an_arity_that_does_not_fit_gives_nothing_and_never_a_made_up_shape(old: MasterConfigLoader) -> None:
    old.get_suite_parameters("add")

    assert unpack_traced_config("none_traced_0") == (None,) * 5
    assert unpack_traced_config("add_traced_0") == (None,) * 5
    assert unpack_binary_traced_config("none_traced_0") == (None,) * 7
    assert unpack_traced_config("add_traced_0", use_defaults=True) == (None,) * 5


def test_defaults_are_given_only_to_those_who_ask_for_them() -> None:
    assert unpack_traced_config("none_traced_0", use_defaults=True)[:2] == ([1, 32, 32], torch.bfloat16)
    assert unpack_binary_traced_config("none_traced_0", use_defaults=True)[0] == {
        "self": [1, 32, 32],
        "other": [1, 32, 32],
    }


def test_the_dictionary_layout_has_a_row_for_each_execution_and_absent_is_not_none(tmp_path: Path) -> None:
    loader = MasterConfigLoader(
        file_with(
            tmp_path,
            {
                "ttnn.add": {
                    "configurations": [
                        v2("a.py", "b.py", arg0=V2_TENSOR, arg1=V2_TENSOR, dtype=None),
                        v2("c.py", arg0=V2_TENSOR, arg1=2.5, memory_config=DRAM, bias=V2_TENSOR),
                    ]
                }
            },
        )
    )

    ((key, rows),) = loader.get_suite_parameters("ttnn.add").items()
    told = [dict(zip(key.split(","), row, strict=True)) for row in rows]

    assert [one["traced_source"] for one in told] == ["a.py", "b.py", "c.py"]
    assert told[0]["input_b_shape"] == (1, 1, 32, 64)
    assert (told[0]["dtype"], told[2]["dtype"]) == (None, "__ABSENT__")
    assert (told[2]["input_b_shape"], told[2]["arg1"]) == ("__ABSENT__", 2.5)
    assert told[2]["bias_dtype"] is torch.bfloat16
    assert told[2]["output_memory_config"] == DRAM
    assert {one["config_hash"] for one in told} == {"abc"}


def test_an_unknown_op_is_an_error_that_names_near_ones(old: MasterConfigLoader) -> None:
    with pytest.raises(UnknownOpError, match="ttnn::permute"):
        old.get_suite_parameters("permut")


def test_the_database_is_found_by_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store.open(str(tmp_path / "x.db")) as store:
        store.add([seen(mm(), model="bert")])
    monkeypatch.setenv("TORCHSTONE_DB", str(tmp_path / "x.db"))

    ((key, rows),) = MasterConfigLoader().get_suite_parameters("aten.mm.default").items()

    told = dict(zip(key.split(","), rows[0], strict=True))
    assert (told["input_a_shape"], told["input_b_shape"], told["traced_source"]) == ((2, 3), (3, 4), "bert")


def test_a_database_on_a_server_is_read_by_its_url(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store.open(postgres_url) as store:
        store.add([seen(mm(), model="bert")])

    given = MasterConfigLoader(db=postgres_url).get_suite_parameters("mm")
    monkeypatch.setenv("TORCHSTONE_DB", postgres_url)

    assert len(given) == 1
    assert MasterConfigLoader().get_suite_parameters("mm") == given


def test_a_file_that_is_not_there_is_told_with_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"there is no .*none\.json; give a master file"):
        MasterConfigLoader(tmp_path / "none.json").get_suite_parameters("add")


@pytest.mark.skipif(DATA is None, reason="the sample files of tt-metal are not here")
@pytest.mark.parametrize(
    ("name", "configurations"),
    [
        ("master_v1_2025-11.json", 1079),
        ("master_v2_llama32_1b_n300_2026-05.json", 609),
        ("master_v2_deepseek_v3_galaxy_2026-03.json", 338),
    ],
)
def test_every_configuration_of_a_real_file_becomes_a_row(name: str, configurations: int) -> None:
    assert DATA is not None
    loader = MasterConfigLoader(DATA / name)
    ops = json.loads((DATA / name).read_bytes())["operations"]

    assert sum(len(rows) for op in ops for rows in loader.get_suite_parameters(op).values()) == configurations


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
