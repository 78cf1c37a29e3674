import ast
from typing import Any

import pytest

from tests.sweep.builders import call, tensor
from torchstone.configs.aten_text import read_aten_text
from torchstone.configs.export import write_pytest
from torchstone.record.config import Configuration, SeenConfiguration, TensorFacts
from torchstone.record.tensor import TensorSpec
from torchstone.record.value import Argument, Atom, Opaque

TEXT = """\
Operator: aten.addmm.default
cnt: 1, ((T([3], f32), T([4, 2], f32, stride=(1, 4)), T([2, 3], f32)), {})
Operator: aten._to_copy.default
cnt: 1, ((T([4, 1], f32),), {'dtype': f16})
Operator: aten.cat.default
cnt: 1, (([T([2], i64), T([3], i64)], 0), {})
Operator: aten.masked_fill.Scalar
cnt: 1, ((T([2, 3], f32), T([2, 3], b8), -inf), {})
Operator: aten.relu_.default
cnt: 1, ((T([2, 3], f32),), {})
Operator: aten.sum.default
cnt: 1, ((T([0, 3], f32),), {})
"""
INDEX = TensorSpec(shape=(2,), dtype="int64", stride=(1,))
TABLE = TensorSpec(shape=(5, 3), dtype="float32", stride=(3, 1), storage_offset=2)
LOOKUP = SeenConfiguration(
    configuration=Configuration(
        op="aten.embedding.default",
        arguments=(Argument(name="weight", value=TABLE, position=0), Argument(name="indices", value=INDEX, position=1)),
    ),
    facts=(TensorFacts(tensor=1, lowest=0, highest=4, values=(4, 0)),),
)


@pytest.mark.torch
def test_the_tests_of_a_written_file_pass_on_the_cpu() -> None:
    seen = (*read_aten_text(TEXT, source="x", run="1", model="m").seen, LOOKUP)
    exported = write_pytest(seen)
    module: dict[str, Any] = {"__name__": "written"}
    exec(compile(exported.text, "test_ops.py", "exec"), module)  # noqa: S102 - what we wrote ourselves

    for one in module["CALLS"]:
        module["test_the_device_gives_what_the_cpu_gives"](*one.values)

    assert (exported.configurations, exported.left_out) == (7, {})
    assert len(module["CALLS"]) == 7


@pytest.mark.torch
def test_a_wrong_device_fails_the_written_test(monkeypatch: pytest.MonkeyPatch) -> None:
    module: dict[str, Any] = {"__name__": "written"}
    exec(compile(write_pytest([LOOKUP]).text, "test_ops.py", "exec"), module)  # noqa: S102 - what we wrote ourselves
    right = module["on_device"]
    monkeypatch.setitem(module, "on_device", lambda value: [value[0] + 1, value[1]] if value else right(value))
    (call,) = module["CALLS"]

    with pytest.raises(AssertionError, match="not close"):
        module["test_the_device_gives_what_the_cpu_gives"](*call.values)


def test_a_written_file_needs_pytest_and_torch_alone() -> None:
    tree = ast.parse(write_pytest([LOOKUP]).text)
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}

    assert imported == {"os", "pytest", "torch"}


def test_each_test_is_named_after_its_op_and_key() -> None:
    assert f"aten.embedding.default-{LOOKUP.key[:15]}" in write_pytest([LOOKUP]).text


def test_facts_about_values_are_written() -> None:
    text = write_pytest([LOOKUP]).text

    assert "Spec((2,), torch.int64, (1,), low=0, high=4, values=(4, 0))" in text
    assert "Spec((5, 3), torch.float32, (3, 1), offset=2)" in text


@pytest.mark.parametrize(
    "configuration",
    [
        Configuration(op="ttnn.add"),
        Configuration(op="aten.x.default", aliases=((0, 1),)),
        Configuration(op="aten.x.default", arguments=(Argument(name="a", value=Opaque(class_name="X"), position=0),)),
        Configuration(
            op="aten.x.default",
            arguments=(Argument(name="a", value=TensorSpec(shape=(1,), dtype="int8", layout="sparse_coo")),),
        ),
    ],
)
def test_what_cannot_be_a_test_is_left_out_and_counted(configuration: Configuration) -> None:
    exported = write_pytest([SeenConfiguration(configuration=configuration)])

    assert exported.configurations == 0
    assert sum(exported.left_out.values()) == 1
    assert ast.parse(exported.text).body


EVIL = "float32 if __import__('os').system('touch canary') else torch.float32"


@pytest.mark.parametrize(
    "configuration",
    [
        call("aten.sin.default", self_=tensor(3, dtype=EVIL)),
        call("aten._to_copy.default", self_=tensor(3), dtype=Atom(kind="dtype", text=EVIL)),
        call("aten.clone.default", self_=tensor(3), memory_format=Atom(kind="memory_format", text="x\nimport os")),
        call("aten.from_file.default", filename="canary", shared=True, size=16),
    ],
)
def test_a_configuration_of_others_brings_no_code_into_the_file(configuration: Configuration) -> None:
    exported = write_pytest([SeenConfiguration(configuration=configuration)])

    assert exported.configurations == 0
    assert sum(exported.left_out.values()) == 1
    assert "canary" not in exported.text
