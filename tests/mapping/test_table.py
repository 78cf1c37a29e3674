from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.report.traces import transformer
from torchstone.mapping import table
from torchstone.mapping.load import load_rules
from torchstone.mapping.payloads import payload_of
from torchstone.mapping.programs import program_of
from torchstone.record.op import OpSignature
from torchstone.record.tensor import TensorSpec
from torchstone.record.value import Argument, Atom, Items


def test_an_overload_or_an_op_in_place_has_the_rule_of_its_op() -> None:
    load_rules()
    add = table.find_mapping("aten.add.Tensor")

    assert add is not None
    assert table.find_mapping("aten.add_.Scalar") == add
    assert table.find_mapping("aten.no_such_op.default") is None


def test_a_rule_of_the_user_replaces_the_rule_of_torchstone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load_rules()
    monkeypatch.setattr(table, "_TABLE", dict(table._TABLE))
    own = tmp_path / "own.py"
    text = "from torchstone.mapping.table import maps\n\n@maps('aten.relu')\ndef mine(tt, self):\n    return self\n"
    own.write_text(text, encoding="utf-8")
    load_rules([str(own)])
    found = table.find_mapping("aten.relu.default")

    assert found is not None
    assert found.rule is not None
    assert found.rule.__name__ == "mine"


def test_a_signature_becomes_plain_json() -> None:
    spec = TensorSpec(shape=(2, 3), dtype="float32", stride=(3, 1))
    arguments = (
        Argument(name="self", value=spec),
        Argument(name="dim", value=Items(kind="list", items=(0, 1))),
        Argument(name="value", value=Atom(kind="float", text="-inf")),
        Argument(name="dtype", value=Atom(kind="dtype", text="int64")),
    )
    found = payload_of(OpSignature(op="aten.x.default", arguments=arguments, output=spec))

    assert found["arguments"]["self"] == {"tensor": {"shape": [2, 3], "dtype": "float32"}}
    assert found["arguments"]["dim"] == [0, 1]
    assert found["arguments"]["value"] == {"number": "-inf"}
    assert found["arguments"]["dtype"] == "int64"
    assert found["outputs"] == [[2, 3]]


@pytest.mark.parametrize("class_name", ["net.X:\n    import os\n", "net.class", "", "net.Sharded[Linear]"])
def test_a_trace_of_others_brings_no_code_into_a_skeleton(class_name: str) -> None:
    trace = transformer(1)
    call = trace.module_calls[0]
    module = replace(trace.modules[call.module], class_name=class_name, path='a"""\nimport os\nx = """.b')
    modules = tuple(module if number == call.module else one for number, one in enumerate(trace.modules))

    described = program_of(replace(trace, modules=modules), call)

    assert described["class"].isidentifier()
    assert described["path"] == "a_import_os_x_.b"
    compile(f"class {described['class']}:\n    pass\n", "skeleton.py", "exec")
