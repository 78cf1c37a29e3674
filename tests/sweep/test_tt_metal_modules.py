"""Sweep modules of tt-metal with torchstone's loader, on its real master files where they are here."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.sweep.test_master_config_loader import DATA, V2_TENSOR, v2
from tests.sweep.test_master_entries import V1_TENSOR, file_with, v1
from tests.sweep.tt_metal import BINARY, UNARY, write_stub
from torchstone.configs.import_file import import_path
from torchstone.store.database import Store
from torchstone.sweep import MasterConfigLoader, ttnn_objects
from torchstone.sweep.child import module as child_module
from torchstone.sweep.child.module import describe, run_vector, set_up
from torchstone.sweep.master_config_loader import TracedConfigWarning

MASTERS = [] if DATA is None else sorted(DATA.glob("master_*.json"))
needs_data = pytest.mark.skipif(not MASTERS, reason="the sample files of tt-metal are not here")


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(child_module, "_loaded", child_module._Loaded())
    before = set(sys.modules)
    ttnn_objects._imported.cache_clear()
    yield
    ttnn_objects._imported.cache_clear()
    for name in set(sys.modules) - before:
        if name == "ttnn" or name.startswith("tests.sweep_framework"):
            del sys.modules[name]


def outcomes(folder: Path, text: str) -> dict[str, list[dict[str, Any]]]:
    """How the vectors of a module end, by suite."""
    (folder / "guide.py").write_text(text, encoding="utf-8")
    set_up({"path": str(folder / "guide.py")})
    found: dict[str, list[dict[str, Any]]] = {}
    for one in describe({})["vectors"]:
        found.setdefault(one["suite"], []).append(run_vector({"vector": one["id"]}))
    return found


@needs_data
@pytest.mark.parametrize("with_objects", [False, True])
@pytest.mark.parametrize(
    ("template", "op", "vectors"),
    [(UNARY, "sigmoid_accurate", 30), (UNARY, "ttnn::typecast", 33), (BINARY, "add", 47), (BINARY, "multiply", 57)],
)
def test_the_modules_of_the_guide_run_all_their_vectors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, template: str, op: str, vectors: int, *, with_objects: bool
) -> None:
    write_stub(tmp_path, with_objects=with_objects)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("TTNN_MASTER_JSON_PATH", str(DATA / "master_v1_2025-11.json" if DATA else ""))

    traced = outcomes(tmp_path, template.format(op=op))["model_traced"]

    assert [one["detail"] for one in traced] == [""] * vectors
    assert {one["outcome"] for one in traced} == {"passed"}


@needs_data
@pytest.mark.parametrize("master", MASTERS, ids=lambda path: path.stem)
def test_a_file_and_the_database_that_it_was_imported_into_give_the_same_parameters(
    tmp_path: Path, master: Path
) -> None:
    imported = import_path(master)
    with Store.open(str(tmp_path / "x.db")) as store:
        store.add(imported.seen, runs=imported.runs)
    file, database = MasterConfigLoader(master), MasterConfigLoader(db=tmp_path / "x.db")

    for op in json.loads(master.read_bytes())["operations"]:
        assert file.get_suite_parameters(op) == database.get_suite_parameters(op), op
        assert file.get_suite_parameters(op, all_cases=True) == database.get_suite_parameters(op, all_cases=True), op
        assert file.get_operation_configs(op) == database.get_operation_configs(op), op


@needs_data
@pytest.mark.parametrize("master", MASTERS, ids=lambda path: path.stem)
def test_no_two_calls_of_a_real_file_become_the_same_row(master: Path) -> None:
    loader = MasterConfigLoader(master)

    for op, content in json.loads(master.read_bytes())["operations"].items():
        ((_, rows),) = loader.get_suite_parameters(op).items()
        assert len({repr(row) for row in rows}) == len(content["configurations"]), op


def test_an_op_that_was_never_traced_leaves_the_other_suites_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    master = file_with(tmp_path, {"ttnn::silu": {"configurations": [v1({"arg0": V1_TENSOR})]}})
    monkeypatch.setenv("TTNN_MASTER_JSON_PATH", str(master))

    found = outcomes(tmp_path, UNARY.format(op="swilu"))

    assert {suite: len(results) for suite, results in found.items()} == {"nightly": 1}
    (note,) = describe({})["notes"]
    assert "no configuration of 'swilu'" in note
    assert "near are ttnn::silu" in note


def test_a_number_in_the_place_of_a_tensor_is_left_out_with_a_note_where_run_cannot_take_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = [v1({"arg0": V1_TENSOR}, {"arg1": V1_TENSOR}), v1({"arg0": V1_TENSOR}, {"arg1": "2.5"})]
    master = file_with(tmp_path, {"ttnn::add": {"configurations": calls}})
    monkeypatch.setenv("TTNN_MASTER_JSON_PATH", str(master))

    assert len(outcomes(tmp_path, BINARY.format(op="add"))["model_traced"]) == 1
    assert "1 of 2 configurations of add have a number" in describe({})["notes"][0]
    ((key, rows),) = MasterConfigLoader(master).get_suite_parameters("add").items()
    told = dict(zip(key.split(","), rows[1], strict=True))
    assert (told["input_shape"], told["input_b_dtype"], told["scalar"]) == ({"self": (1, 32), "other": None}, None, 2.5)


ANY_KEYWORD = """
from tests.sweep_framework.master_config_loader_v2 import (
    MasterConfigLoader, dict_to_compute_kernel_config, dict_to_core_grid, dict_to_memory_config, dict_to_program_config,
    parse_dtype, parse_layout,
)

parameters = {"model_traced": MasterConfigLoader().get_suite_parameters("add")}


def run(input_a_shape, input_a_dtype, memory_config=None, storage_type="StorageType::DEVICE", *, device, **kwargs):
    assert memory_config is None and kwargs["output_memory_config"] is None
    assert kwargs["config_hash"] == "abc" and kwargs["input_b_tensor_placement"] is None
    assert kwargs["arg2"] == {"type": "DataType", "repr": "DataType.BFLOAT16"}
    return True, ""
"""


def test_a_module_of_2026_gets_what_upstream_gives_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dtype = {"type": "DataType", "repr": "DataType.BFLOAT16"}
    call = v2("a.py", arg0=V2_TENSOR, arg1=V2_TENSOR, arg2=dtype, memory_config=None)
    monkeypatch.setenv("TTNN_MASTER_JSON_PATH", str(file_with(tmp_path, {"ttnn.add": {"configurations": [call]}})))

    (only,) = outcomes(tmp_path, ANY_KEYWORD)["model_traced"]

    assert (only["outcome"], only["detail"]) == ("passed", "")


def test_the_filters_of_the_generator_apply_to_all_loaders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TTNN_LEAD_MODELS_ONLY", "0")
    for name in ("_lead_models_only", "_mesh_filter"):
        monkeypatch.setattr(MasterConfigLoader, name, None)
    call = v2(arg0=V2_TENSOR)
    call["executions"] = [
        {"source": "models/demos/deepseek_v3/x.py", "machine_info": {"mesh_device_shape": [1, 2]}},
        {"source": "models/other.py", "machine_info": {"mesh_device_shape": [8, 4]}},
    ]
    loader = MasterConfigLoader(file_with(tmp_path, {"ttnn.silu": {"configurations": [call]}}))

    assert len(loader.get_operation_configs("silu")) == 2
    MasterConfigLoader.set_lead_models_filter(enabled=True)
    assert [one[1] for one in loader.get_operation_configs("silu")] == ["models/demos/deepseek_v3/x.py"]
    MasterConfigLoader.set_mesh_filter((8, 4))
    with pytest.warns(TracedConfigWarning, match="none of 1 configuration"):
        assert loader.get_suite_parameters("silu") == {"traced_config_name": []}
