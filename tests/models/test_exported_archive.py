"""Code planted in every place of a .pt2 file from which torch runs it: torchstone refuses the file instead."""

import io
import json
import pickle
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from torchstone.cli.main import run
from torchstone.errors import EXIT_BAD_INPUT, EXIT_FINE
from torchstone.models.exported import load_exported
from torchstone.models.exported_archive import UnsafeArchiveError, check_archive

MARKER = Path("marker")  # in the test's own working directory
COMMAND = f"touch {MARKER}"
PYTHON = f"__import__('os').system('{COMMAND}')"
PYTHON_IN_DOUBLE_QUOTES = f'")or __import__("os").system("{COMMAND}")or getattr(self,"'
Members = dict[str, bytes]


class Planted:
    def __reduce__(self) -> tuple[Callable[[str], object], tuple[str]]:
        import os

        return os.system, (COMMAND,)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.constant = torch.ones(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sum(self.linear(x) + self.constant + x.shape[0] // 2, dim=-1, keepdim=True)


@pytest.fixture(scope="module")
def members() -> Members:
    """What torch.export.save writes for a model with dynamic sizes."""
    batch = torch.export.Dim("batch", min=2, max=64)
    file = io.BytesIO()
    torch.export.save(torch.export.export(Net(), (torch.ones(6, 4),), dynamic_shapes=({0: batch},)), file)
    with zipfile.ZipFile(file) as archive:
        return {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}


def write(path: Path, members: Members) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, content in members.items():
            archive.writestr(name.removeprefix("/") if name.startswith("/") else f"net/{name}", content)
    return path


def saved(value: object) -> bytes:
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


def with_json(members: Members, name: str, change: Callable[[Any], object]) -> Members:
    document = json.loads(members[name])
    change(document)
    return members | {name: json.dumps(document).encode()}


def with_program(members: Members, change: Callable[[Any], object]) -> Members:
    return with_json(members, "models/model.json", change)


def first_node(document: Any, target: str) -> Any:
    return next(node for node in document["graph_module"]["graph"]["nodes"] if target in node["target"])


def in_sample_inputs(members: Members) -> Members:
    return members | {"data/sample_inputs/model.pt": saved(((Planted(),), {}))}


def in_sample_inputs_as_bare_pickle(members: Members) -> Members:
    return members | {"data/sample_inputs/model.pt": pickle.dumps(Planted(), protocol=2)}


def in_a_weight(members: Members) -> Members:
    def change(document: Any) -> None:
        document["config"]["linear.weight"]["use_pickle"] = True

    changed = with_json(members, "data/weights/model_weights_config.json", change)
    return changed | {"data/weights/weight_0": saved(Planted())}


def in_a_constant(members: Members) -> Members:
    def change(document: Any) -> None:
        document["config"]["constant"]["use_pickle"] = True

    changed = with_json(members, "data/constants/model_constants_config.json", change)
    return changed | {"data/constants/tensor_0": saved(Planted())}


def in_an_opaque_object(members: Members) -> Members:
    def change(document: Any) -> None:
        document["config"]["constant"] |= {"use_pickle": True, "path_name": "opaque_obj_0"}

    changed = with_json(members, "data/constants/model_constants_config.json", change)
    return changed | {"data/constants/opaque_obj_0": pickle.dumps(Planted())}


def in_weights_of_an_older_format(members: Members) -> Members:
    return members | {"data/weights/model.pt": saved({"linear.weight": Planted()})}


def in_constants_of_an_older_format(members: Members) -> Members:
    return members | {"data/constants/model.pt": saved({"constant": Planted()})}


def in_an_archive_of_an_older_format(members: Members) -> Members:
    planted = saved({"linear.weight": Planted()})
    return {
        "/version": b"8.20",
        "/serialized_exported_program.json": members["models/model.json"],
        "/serialized_state_dict.pt": planted,
        "/serialized_constants.pt": planted,
        "/serialized_example_inputs.pt": planted,
    }


def in_a_size(members: Members) -> Members:
    def change(document: Any) -> None:
        sizes = document["graph_module"]["graph"]["tensor_values"]["x"]["sizes"]
        sizes[0]["as_expr"]["expr_str"] = PYTHON

    return with_program(members, change)


def in_a_size_of_a_tensor_named_metadata(members: Members) -> Members:
    def change(document: Any) -> None:
        values = document["graph_module"]["graph"]["tensor_values"]
        values["metadata"] = json.loads(json.dumps(values["x"]).replace("Symbol(", f"Max({PYTHON},Symbol("))
        values["metadata"]["sizes"][0]["as_expr"]["expr_str"] += ")"

    return with_program(members, change)


def in_a_guard(members: Members) -> Members:
    return with_program(members, lambda document: document["guards_code"].append(f"{PYTHON} == 0"))


def in_the_name_of_a_node(members: Members) -> Members:
    text = json.dumps(f"linear=0;{PYTHON};linear".replace("'", '"'))
    return members | {"models/model.json": members["models/model.json"].replace(b'"linear"', text.encode())}


def in_the_name_of_a_keyword(members: Members) -> Members:
    def change(document: Any) -> None:
        keyword = first_node(document, "aten.sum")["inputs"][2]
        keyword |= {"name": f"keepdim={PYTHON}==0,dtype", "kind": 2, "arg": {"as_none": True}}

    return with_program(members, change)


def in_the_name_of_a_weight(members: Members) -> Members:
    name = json.dumps(f"linear{PYTHON_IN_DOUBLE_QUOTES}").encode()
    return {key: content.replace(b'"constant"', name) for key, content in members.items()}


def in_the_path_of_a_module(members: Members) -> Members:
    def change(document: Any) -> None:
        node = first_node(document, "aten.linear")
        path = f"linear{PYTHON_IN_DOUBLE_QUOTES}"
        node["metadata"]["nn_module_stack"] = f"L__self__,,Net;L__self__linear,{path},torch.nn.modules.linear.Linear"

    return with_program(members, change)


def as_an_op(members: Members) -> Members:
    def change(document: Any) -> None:
        node = first_node(document, "aten.linear")
        node |= {"target": "torch.os.system", "inputs": [{"name": "", "arg": {"as_string": COMMAND}, "kind": 1}]}

    return with_program(members, change)


def as_an_op_that_writes_files(members: Members) -> Members:
    def change(document: Any) -> None:
        nodes = document["graph_module"]["graph"]["nodes"]
        texts = {"item": COMMAND, "filename": str(MARKER)}
        inputs = [{"name": name, "arg": {"as_string": text}, "kind": 1} for name, text in texts.items()]
        write_file = {"target": "torch.ops.aten.save.default", "name": "save", "inputs": inputs}
        nodes.insert(0, write_file | {"outputs": [], "metadata": {}, "is_hop_single_tensor_return": None})

    return with_program(members, change)


def as_an_op_that_prints(members: Members) -> Members:
    def change(document: Any) -> None:
        inputs = [{"name": "s", "arg": {"as_string": "\x1b]0;title\x07"}, "kind": 1}]
        printed = {"target": "torch.ops.aten._print.default", "name": "printed", "inputs": inputs, "outputs": []}
        nodes = document["graph_module"]["graph"]["nodes"]
        nodes.insert(0, printed | {"metadata": {}, "is_hop_single_tensor_return": None})

    return with_program(members, change)


def as_an_argument_of_an_op(members: Members) -> Members:
    def change(document: Any) -> None:
        node = first_node(document, "aten.linear")
        node["inputs"][0]["arg"] = {"as_operator": "torch.os.system"}

    return with_program(members, change)


def as_the_type_of_inputs(members: Members) -> Members:
    Path("planted.py").write_text(f"import os; os.system('{COMMAND}')", encoding="utf-8")

    def change(document: Any) -> None:
        signature = document["graph_module"]["module_call_graph"][0]["signature"]
        context = json.dumps([{"__enum__": True, "fqn": "planted:Color", "name": "RED"}])
        signature["out_spec"] = signature["out_spec"].replace('"context": null', f'"context": {json.dumps(context)}')
        signature["out_spec"] = signature["out_spec"].replace('"type": null', '"type": "builtins.dict"')

    return with_program(members, change)


def as_the_factory_of_inputs(members: Members) -> Members:
    Path("planted.py").write_text(f"import os; os.system('{COMMAND}')", encoding="utf-8")

    def change(document: Any) -> None:
        signature = document["graph_module"]["module_call_graph"][0]["signature"]
        context = {"default_factory_module": "planted", "default_factory_name": "Color", "dict_context": []}
        spec = {"type": "collections.defaultdict", "context": context, "children_spec": []}
        signature["out_spec"] = json.dumps([1, spec])

    return with_program(members, change)


def as_a_constant_input(members: Members) -> Members:
    def change(document: Any) -> None:
        value = {"as_string": f"' or {PYTHON} or '"}
        document["graph_module"]["signature"]["input_specs"].append({"constant_input": {"name": "y", "value": value}})

    return with_program(members, change)


def as_a_compiled_library(members: Members) -> Members:
    return members | {"data/aotinductor/model/planted.so": b"\x7fELF"}


def as_a_custom_object(members: Members) -> Members:
    def change(document: Any) -> None:
        node = first_node(document, "aten.linear")
        node["inputs"][0]["arg"] = {"as_custom_obj": {"name": "x", "class_fqn": "__torch__.torch.classes.x.Y"}}

    return with_program(members, change)


RUN_BY_TORCH = [
    in_sample_inputs, in_a_weight, in_a_constant, in_an_opaque_object, in_weights_of_an_older_format,
    in_constants_of_an_older_format, in_an_archive_of_an_older_format, in_a_size, in_a_guard,
    as_the_type_of_inputs, as_the_factory_of_inputs,
]  # fmt: skip
STOPPED_BY_THIS_TORCH = [
    in_sample_inputs_as_bare_pickle, in_a_size_of_a_tensor_named_metadata, in_the_name_of_a_node,
    in_the_name_of_a_keyword, in_the_name_of_a_weight, in_the_path_of_a_module, as_an_op, as_an_op_that_writes_files,
    as_an_op_that_prints, as_an_argument_of_an_op, as_a_constant_input, as_a_compiled_library, as_a_custom_object,
]  # fmt: skip
Plant = Callable[[Members], Members]


@pytest.mark.parametrize("plant", RUN_BY_TORCH + STOPPED_BY_THIS_TORCH)
def test_planted_code_does_not_run(plant: Plant, members: Members, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(Path("net.pt2"), plant(members))

    assert run(["inspect", str(file)]) == EXIT_BAD_INPUT

    assert not MARKER.exists()
    printed, shown = capsys.readouterr()
    assert printed == ""
    assert shown.startswith("torchstone: error: net.pt2 ")
    assert ("could run code while it is read" in shown) == (plant is not in_an_archive_of_an_older_format)
    assert "again with torch.export.save" in shown
    assert shown.count("\n") == 1


@pytest.fixture
def importable_here(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    import sys

    monkeypatch.syspath_prepend(str(Path.cwd()))
    yield
    sys.modules.pop("planted", None)


@pytest.mark.usefixtures("importable_here")
@pytest.mark.parametrize("plant", RUN_BY_TORCH)
def test_torch_alone_would_run_it(plant: Plant, members: Members) -> None:
    file = write(Path("net.pt2"), plant(members))

    with warnings.catch_warnings(), suppress(Exception):
        warnings.simplefilter("ignore")
        program = torch.export.load(file)
        for module in (torch.export.unflatten, torch.export.ExportedProgram.module):
            with suppress(Exception):
                module(program)(torch.ones(6, 4))

    assert MARKER.exists()


class Guarded(nn.Module):
    def forward(self, x: torch.Tensor, *, scale: torch.Tensor) -> dict[str, torch.Tensor]:
        grouped = x.reshape(x.shape[0] // 4, 4, -1) * scale
        return {"grouped": torch.nn.functional.gelu(grouped, approximate="tanh"), "all": torch.cat([x, x])}


def test_ordinary_programs_are_read(capsys: pytest.CaptureFixture[str]) -> None:
    batch = torch.export.Dim("batch", min=2, max=64)
    program = torch.export.export(
        Guarded(),
        (torch.ones(8, 4),),
        {"scale": torch.ones(1)},
        dynamic_shapes={"x": {0: 4 * batch}, "scale": None},
    )
    torch.export.save(program, "net.pt2", extra_files={"notes.txt": "it's (mine)"})

    assert run(["inspect", "net.pt2"]) == EXIT_FINE
    assert "the example inputs in net.pt2" in capsys.readouterr().out


def test_a_program_without_inputs_in_it_is_read(members: Members) -> None:
    model, inputs = load_exported(write(Path("net.pt2"), members | {"data/sample_inputs/model.pt": b""}), seed=0)

    assert model(*inputs.args).shape == (6, 1)


def test_ops_of_other_packages_that_write_files_are_refused(members: Members, tmp_path: Path) -> None:
    """torchvision registers such ops when transformers imports it."""
    library = torch.library.Library("image", "FRAGMENT")
    library.define("write_anything(Tensor data) -> Tensor")
    library.impl("write_anything", lambda data: data, "CPU")

    def change(program: Any) -> None:
        program["graph_module"]["graph"]["nodes"][-1]["target"] = "torch.ops.image.write_anything.default"

    with pytest.raises(UnsafeArchiveError, match=r"it calls 'torch\.ops\.image\.write_anything\.default'"):
        check_archive(write(tmp_path / "net.pt2", with_program(members, change)))


def test_a_program_that_torch_reads_but_cannot_call_is_refused(
    members: Members, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def change(program: Any) -> None:
        program["graph_module"]["module_call_graph"].reverse()

    file = write(tmp_path / "net.pt2", with_program(members, change))

    assert run(["inspect", str(file), "--no-cache"]) == EXIT_BAD_INPUT
    assert "net.pt2 cannot be called (expected first module_call_graph fqn" in capsys.readouterr().err


def test_a_deeply_nested_program_is_refused(members: Members) -> None:
    nested = b"[" * 200_000 + b"]" * 200_000
    with pytest.raises(UnsafeArchiveError, match="nested too deeply"):
        check_archive(write(Path("net.pt2"), members | {"models/model.json": nested}))
