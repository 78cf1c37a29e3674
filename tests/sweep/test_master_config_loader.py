import json
from pathlib import Path

import pytest
import torch

from tests.sweep.builders import mm, seen
from tests.sweep.test_master_entries import V1_TENSOR, file_with, v1
from torchstone.store.database import Store
from torchstone.sweep import MasterConfigLoader, unpack_binary_traced_config, unpack_traced_config
from torchstone.sweep.master_config_loader import TracedConfigWarning, UnknownOpError, get_traced_config

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
    assert rows == [((1, 32), torch.bfloat16, "TILE", memory, memory, "StorageType::DEVICE")]


def test_two_tensors_give_both_shapes_under_one_name(old: MasterConfigLoader) -> None:
    ((key, rows),) = old.get_suite_parameters("add").items()

    assert key == BINARY
    assert rows[0][0] == {"self": (1, 32), "other": (1, 32)}
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


def test_an_unknown_op_gives_an_empty_suite_and_a_warning_that_names_near_ones(old: MasterConfigLoader) -> None:
    with pytest.warns(TracedConfigWarning, match="ttnn::permute"):
        assert old.get_suite_parameters("permut") == {"traced_config_name": []}
    with pytest.raises(UnknownOpError, match="ttnn::permute"):
        old.entries("permut")


def test_a_configuration_is_looked_up_by_its_name_with_all_its_values(old: MasterConfigLoader) -> None:
    old.get_suite_parameters("add")

    found = get_traced_config("add_traced_0")

    assert found is not None
    assert (found["is_binary"], found["shape_a"], found["dtype_b"]) == (True, [1, 32], torch.bfloat16)
    assert found["traced_source"] == "models/a.py"
    assert get_traced_config(None) is None


def test_raw_configurations_have_the_arguments_of_the_file(old: MasterConfigLoader) -> None:
    ((arguments, source, machine),) = old.get_raw_configurations("permute")

    assert arguments == [{"arg0": V1_TENSOR}, {"arg1": [1, 0]}]
    assert (source, machine) == ("models/a.py", None)
    assert old.convert_to_sweep_parameters("permute")["master_configs"]["input_shapes"] == [[1, 32]]
    assert old.convert_to_sweep_parameters("cosine") == {}


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
