import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from torchstone.backends.ttnn.rebuild import Builder, NotRebuiltError, fits, rebuild
from torchstone.backends.ttnn.signatures import UnknownOpError, all_signatures, find_op, parameters_of_line

LINE = (
    "__call__(self, input_tensor: ttnn._ttnn.tensor.Tensor, dims: collections.abc.Sequence[int] = [1, 1], *, "
    "program_config: ttnn::a::B | ttnn._ttnn.c.D | None = None) -> tuple[ttnn.Tensor, int]"
)


def test_a_line_of_a_docstring_names_arguments_types_and_defaults() -> None:
    tensor, dims, config = parameters_of_line(LINE)

    assert (tensor.name, tensor.type, tensor.required, tensor.by_name_only) == ("input_tensor", "Tensor", True, False)
    assert (dims.type, dims.required) == ("Sequence[int]", False)
    assert (config.type, config.by_name_only, config.takes_none) == ("B | D | None", True, True)


def test_a_value_fits_the_types_it_can_be() -> None:
    assert fits(None, "Tensor | None")
    assert not fits(None, "bool")
    assert fits(1, "bool")
    assert not fits(2, "bool")
    assert fits({"memory": {}}, "MemoryConfig | None")
    assert not fits({"memory": {}}, "Tensor | None")
    assert fits({"enum": ["DataType", "X"]}, "DataType | None")
    assert fits({"lost": "?"}, "Conv2dConfig | None")
    assert not fits({"lost": "?"}, "int")


class Op:
    """An op, as ttnn's decorators make one: an object that knows its own name."""

    def __init__(self, name: str, function: Callable[..., object]) -> None:
        self.python_fully_qualified_name = name
        self.function = function

    def __call__(self, *given: object) -> object:
        return self.function(*given)


@pytest.fixture
def ttnn(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A package with the names that ttnn has beside its ops: modules of Python, functions that write files."""
    package: Any = ModuleType("ttnn")
    package.os, package.Path = os, Path
    package.relu = Op("ttnn.relu", lambda x: x)
    package.dump_tensor = Op("ttnn.dump_tensor", lambda name, _: Path(name).touch())
    package.transformer = ModuleType("ttnn.operations.transformer")
    package.transformer.concatenate_heads = Op("ttnn.transformer.concatenate_heads", lambda x: x)
    package._ttnn = ModuleType("ttnn._ttnn")
    package._ttnn.write = Op("ttnn._ttnn.write", lambda: None)
    package._ttnn.operations = SimpleNamespace(transformer=None, matmul=None, embedding=None, data_movement=None)
    package.save = lambda name: Path(name).touch()
    package.Shape = type("Shape", (), {"__module__": "ttnn._ttnn.types"})
    monkeypatch.setitem(sys.modules, "ttnn", package)
    return package


def test_only_what_knows_its_own_name_is_an_op(ttnn: Any) -> None:
    assert find_op("ttnn.relu") is ttnn.relu
    assert find_op("ttnn.transformer.concatenate_heads") is ttnn.transformer.concatenate_heads
    assert list(all_signatures({})) == ["ttnn.dump_tensor", "ttnn.relu", "ttnn.transformer.concatenate_heads"]
    for name in ("ttnn.os.system", "ttnn.Path.home", "ttnn.save", "ttnn.relu.function", "ttnn._ttnn.write", "ttnn"):
        with pytest.raises(UnknownOpError):
            find_op(name)


@pytest.mark.usefixtures("ttnn")
def test_a_trace_with_code_in_it_calls_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UnknownOpError, match=r"ttnn has no op ttnn\.os\.system"):
        rebuild({"op": "ttnn.os.system", "positional": ["touch canary"], "named": {}}, None)
    with pytest.raises(NotRebuiltError, match="reads or writes a file"):
        rebuild({"op": "ttnn.dump_tensor", "positional": ["canary", 1], "named": {}}, None)
    for name in ("save", "Path", "os"):
        with pytest.raises(NotRebuiltError, match=f"is a {name}, which this ttnn does not have"):
            Builder(None).build({"object": [name, {"name": "canary"}]}, "", "x")
    assert list(tmp_path.iterdir()) == []
    assert Builder(None).build({"object": ["Shape", {}]}, "", "x") is not None
