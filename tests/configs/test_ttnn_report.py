from typing import Any

import pytest

from tests.configs.test_ttnn_graph import call as graph_call
from torchstone.configs.ttnn_graph import is_report, read_report
from torchstone.record.config import tensors_of
from torchstone.record.ttnn import ttnn_tensor


def tensor(number: int) -> str:
    return (
        "ttnn.Tensor(shape=Shape([1, 1, 32, 32]), dtype=DataType.BFLOAT16, layout=Layout.TILE, "
        "memory_config=MemoryConfig(memory_layout=TensorMemoryLayout.INTERLEAVED, buffer_type=BufferType.DRAM), "
        f"storage_type=StorageType.DEVICE, tensor_id={number})"
    )


def call(*tensors: int, line: int = 10, **named: Any) -> dict[str, Any]:
    return {
        "name": "ttnn::add",
        "arguments": {str(place): tensor(number) for place, number in enumerate(tensors)} | named,
        "python_stack_trace": [
            '  File "run.py", line 1, in main\n    model(x)\n',
            f'  File "model.py", line {line}, in forward\n    out = ttnn.add(x, y)\n',
        ],
    }


def read(*calls: Any, **more: Any) -> Any:
    return read_report({"version": 1, "graph": [], "python_io": list(calls), **more}, source="r.json", run="1")


def test_the_number_of_a_tensor_does_not_make_another_configuration() -> None:
    (one,) = read(call(42, 43), call(44, 45)).seen

    assert one.calls == 2
    assert [found.shape for found in tensors_of(one.configuration)] == [(1, 1, 32, 32)] * 2


def test_the_same_tensor_twice_does() -> None:
    apart, same = read(call(42, 43), call(7, 7)).seen

    assert apart.configuration.aliases == ()
    assert same.configuration.aliases == ((0, 1),)


def test_the_line_that_made_a_call_is_kept() -> None:
    (one,) = read(call(1, 2, line=10), call(1, 2, line=11), call(1, 2, line=10)).seen

    assert [(place.call_site, place.count) for place in one.occurrences] == [("model.py:10", 2), ("model.py:11", 1)]


def test_parts_of_a_tensor_are_read_from_its_text() -> None:
    (one,) = read(call(1, memory_config="MemoryConfig(...)")).seen
    first, memory = one.configuration.arguments

    found = ttnn_tensor(first.value)
    assert found is not None
    assert (found.dtype, found.layout, found.storage) == ("BFLOAT16", "TILE", "DEVICE")
    assert found.memory is not None
    assert (found.memory.buffer, found.memory.layout) == ("DRAM", "INTERLEAVED")
    assert (memory.name, memory.value) == ("memory_config", "MemoryConfig(...)")


def test_a_report_without_python_calls_is_read_from_its_graph() -> None:
    imported = read_report({"version": 1, "graph": graph_call(0, "ttnn::relu")}, source="r.json", run="1")

    assert [one.configuration.op for one in imported.seen] == ["ttnn.relu"]


def test_an_entry_that_is_no_call_is_named() -> None:
    imported = read(call(1), {"name": "x"}, 5)

    assert [part.where for part in imported.unread] == ["python_io 1", "python_io 2"]


@pytest.mark.parametrize(
    ("document", "yes"),
    [({"version": 1, "graph": []}, True), ({"version": 1, "python_io": []}, True), ({"graph": []}, False), ([], False)],
)
def test_a_report_is_known_by_its_look(document: object, yes: bool) -> None:  # noqa: FBT001 - a case of the table
    assert is_report(document) is yes


@pytest.mark.parametrize(
    ("stack", "line"),
    [
        (['File "n.py", line 3, in f\n  return g(x)', 'File "n.py", line 9, in <module>\n  f(x)'], "n.py:3"),
        (['File "n.py", line 9, in <module>\n  f(x)', 'File "n.py", line 3, in f\n  return g(x)'], "n.py:3"),
        (['File "n.py", line 3, in f\n  ttnn.add(x, x)', 'File "n.py", line 9, in test\n  f(x)'], "n.py:3"),
        (['File "n.py", line 9, in test\n  f(x)', 'File "n.py", line 3, in f\n  ttnn.add(x, x)'], "n.py:3"),
        (['File "n.py", line 9, in <module>\n  ttnn.add(x, x)'], "n.py:9"),
        ([], ""),
    ],
)
def test_the_line_of_a_call_is_the_innermost_in_either_order(stack: list[str], line: str) -> None:
    (one,) = read(call(1, 2) | {"python_stack_trace": stack}).seen

    assert one.occurrences[0].call_site == line
