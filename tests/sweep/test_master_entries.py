import json
from pathlib import Path

import pytest

from torchstone.sweep.master_entries import UNREADABLE, position_of, read_master, spellings

V1_TENSOR = {
    "Tensor": {
        "tensor_spec": {
            "logical_shape": [1, 32],
            "tensor_layout": {
                "dtype": "DataType::BFLOAT16",
                "memory_config": {
                    "memory_layout": "TensorMemoryLayout::INTERLEAVED",
                    "buffer_type": "BufferType::DRAM",
                },
            },
        },
        "storage_type": "StorageType::DEVICE",
        "layout": "Layout::TILE",
    }
}
BROKEN = '{"arg0": {"Tensor": {"grid":{[{"x":0,"y":0} - {"x":7,"y":5}], [{"x":0,"y":6} - {"x":0,"y":6}]}}}}'


def v1(*arguments: object) -> dict[str, object]:
    return {"arguments": list(arguments), "source": "models/a.py"}


def file_with(tmp_path: Path, operations: dict[str, object]) -> Path:
    path = tmp_path / "master.json"
    path.write_text(json.dumps({"operations": operations}), encoding="utf-8")
    return path


def test_arguments_of_the_list_layout_are_named_and_their_texts_read(tmp_path: Path) -> None:
    path = file_with(
        tmp_path,
        {"ttnn::permute": {"configurations": [v1({"arg0": V1_TENSOR}, {"arg1": "[0, 2, 3, 1]"}, {"arg2": "nullopt"})]}},
    )

    (entry,), known = read_master(path, "permute")

    assert entry.arguments == {"arg0": V1_TENSOR, "arg1": [0, 2, 3, 1], "arg2": None}
    assert (entry.is_list, entry.executions, known) == (True, [{"source": "models/a.py"}], ["ttnn::permute"])


def test_an_argument_with_a_shard_grid_is_repaired(tmp_path: Path) -> None:
    path = file_with(tmp_path, {"ttnn::add": {"configurations": [v1({"UnparsedElement": {"element_info": BROKEN}})]}})

    (entry,), _ = read_master(path, "add")

    corners = entry.arguments["arg0"]["Tensor"]["grid"]
    assert corners == [[{"x": 0, "y": 0}, {"x": 7, "y": 5}], [{"x": 0, "y": 6}, {"x": 0, "y": 6}]]


@pytest.mark.parametrize(
    "element", [{"UnparsedElement": {"element_info": '{"arg0": {...}}'}}, {"arg0": "[ unsupported type , x]"}]
)
def test_what_cannot_be_read_is_kept_and_flagged(tmp_path: Path, element: dict[str, object]) -> None:
    path = file_with(tmp_path, {"ttnn::add": {"configurations": [v1(element)]}})

    (entry,), _ = read_master(path, "add")

    assert UNREADABLE in entry.arguments["arg0"]


def test_the_dictionary_layout_keeps_its_hash_and_executions(tmp_path: Path) -> None:
    told = {"arguments": {"arg0": 1}, "config_hash": "abc", "executions": [{"source": "a", "count": 3}]}
    path = file_with(tmp_path, {"ttnn.add": {"configurations": [told]}})

    (entry,), _ = read_master(path, "ttnn::add")

    assert (entry.config_hash, entry.is_list, entry.executions) == ("abc", False, [{"source": "a", "count": 3}])


def test_a_file_that_is_something_else_is_named(tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text("[]", encoding="utf-8")

    with pytest.raises(ValueError, match=r"bad\.json is not a master file"):
        read_master(tmp_path / "bad.json", "add")


def test_an_op_is_looked_for_under_all_its_names() -> None:
    assert {"ttnn.add", "ttnn::add", "ttnn.experimental.add", "aten.add.Tensor"} <= set(spellings("add"))
    assert "ttnn::transformer::sdpa" in spellings("ttnn.sdpa")
    assert (position_of("arg12"), position_of("dim")) == (12, None)
