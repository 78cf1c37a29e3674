import json
from pathlib import Path
from typing import Any

import pytest

from tests.configs.real_files import real_file
from torchstone.configs.ttnn_operations import (
    is_operation_trace,
    is_trace_folder,
    read_operation_trace,
    read_trace_folder,
)
from torchstone.record.config import tensors_of
from torchstone.record.value import json_from_value


def call(*, name: str = "ttnn.add", values: list[Any] | None = None, **more: Any) -> dict[str, Any]:
    tensor = {
        "type": "ttnn.Tensor", "shape": [2, 2], "dtype": "float32",
        "original_shape": [2, 2], "original_dtype": "DataType.BFLOAT16", "layout": "Layout.TILE",
    }  # fmt: skip
    with_values = tensor | {"values": values} if values is not None else tensor
    return {
        "operation_id": 1,
        "operation_name": name,
        "args": [{"position": 0, "value": with_values}],
        "kwargs": {"dtype": {"type": "DataType", "repr": "DataType.BFLOAT16"}},
        "return_value": tensor,
        **more,
    }


def folder_of(path: Path, *calls: dict[str, Any], **siblings: dict[str, Any]) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    for number, one in enumerate(calls):
        (path / f"{number}_ttnn_add_20260101.json").write_text(json.dumps(one))
    for name, content in siblings.items():
        (path / f"{name}.json").write_text(json.dumps(content))
    return path


def test_equal_calls_are_one_configuration(tmp_path: Path) -> None:
    (one,) = read_trace_folder(folder_of(tmp_path / "t", call(), call())).seen

    assert one.calls == 2
    assert [(argument.name, argument.position) for argument in one.configuration.arguments] == [
        ("arg0", 0),
        ("dtype", None),
    ]


def test_the_values_of_a_tensor_are_facts_and_no_part_of_the_configuration(tmp_path: Path) -> None:
    calls = [call(values=[[0, 1], [2, 3]]), call(values=[[-4.5, 0], [0, 0]]), call()]

    (one,) = read_trace_folder(folder_of(tmp_path / "t", *calls)).seen

    (fact,) = one.facts
    assert (fact.tensor, fact.lowest, fact.highest) == (0, -4.5, 3)
    assert (fact.fewest_zeros, fact.most_zeros) == (0.25, 0.75)
    assert fact.values is not None
    assert [tensor.dtype for tensor in tensors_of(one.configuration)] == ["BFLOAT16"]


def test_a_run_is_named_by_its_metadata(tmp_path: Path) -> None:
    metadata = {"test_source": "demo.py::test [HF_MODEL:a/b]", "trace_uid": "u1"}

    imported = read_trace_folder(folder_of(tmp_path / "t", call(), _trace_metadata=metadata))

    (place,) = imported.seen[0].occurrences
    assert (place.source, place.run, place.model) == ("demo.py::test [HF_MODEL:a/b]", "u1", "a/b")
    assert json_from_value(imported.runs[0].details) == metadata


def test_a_run_without_a_name_is_named_after_its_files(tmp_path: Path) -> None:
    one, same, other = (
        read_trace_folder(folder_of(tmp_path / name, call(), *more)).runs[0].run
        for name, more in (("a", ()), ("b", ()), ("c", (call(),)))
    )

    assert one == same != other


def test_only_tests_that_passed_count(tmp_path: Path) -> None:
    folder_of(tmp_path / "t" / "one", call(), _status={"test_nodeid": "x::good", "status": "passed"})
    folder_of(tmp_path / "t" / "two", call(name="ttnn.mul"), _status={"test_nodeid": "x::bad", "status": "failed"})

    strict = read_trace_folder(tmp_path / "t")
    everything = read_trace_folder(tmp_path / "t", keep_failing=True)

    assert [one.configuration.op for one in strict.seen] == ["ttnn.add"]
    assert strict.seen[0].occurrences[0].source == "x::good"
    assert "x::bad is failed" in strict.unread[0].reason
    assert len(everything.seen) == 2


def test_a_test_whose_ending_cannot_be_read_did_not_pass(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "t" / "one", call())
    (folder / "_status.json").write_text('{"status": "pas')
    (tmp_path / "t" / "_trace_metadata.json").write_text("{")

    strict = read_trace_folder(tmp_path / "t")
    everything = read_trace_folder(tmp_path / "t", keep_failing=True)

    assert strict.seen == ()
    assert [part.where for part in strict.unread] == ["t/_trace_metadata.json", "one/_status.json", "one"]
    assert len(everything.seen) == 1


def test_files_that_are_no_traces_are_named(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "t", call(), other={"a": 1})
    (folder / "broken.json").write_text("{")

    assert [part.where for part in read_trace_folder(folder).unread] == ["broken.json", "other.json"]


def test_the_hash_of_a_retraced_sweep_is_kept() -> None:
    imported = read_operation_trace(call(sweep_source_hash="abc"), source="x.json", run="1")

    assert json_from_value(imported.seen[0].foreign[0].details) == {"sweep_source_hash": "abc"}


@pytest.mark.parametrize(("document", "yes"), [(call(), True), ({"args": []}, False), ([], False)])
def test_a_trace_is_known_by_its_look(document: object, yes: bool) -> None:  # noqa: FBT001 - a case of the table
    assert is_operation_trace(document) is yes


def test_a_folder_is_known_by_its_files(tmp_path: Path) -> None:
    assert not is_trace_folder(tmp_path)
    folder_of(tmp_path / "a", call())

    assert is_trace_folder(tmp_path / "a")
    assert is_trace_folder(tmp_path)


def test_real_traces_are_read_whole() -> None:
    first = read_trace_folder(real_file("ttnn/operation_trace_example1"))
    second = read_trace_folder(real_file("ttnn/operation_trace_example2"))

    assert {one.configuration.op: one.calls for one in first.seen} == {"ttnn.rand": 2, "ttnn.add": 1}
    assert [len(one.facts) for one in second.seen] == [1, 1]
    assert first.unread == second.unread == ()


def test_lines_of_python_and_reports_may_stand_beside_the_calls(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "t" / "a", call(), call(operation_id=2), call(operation_id=3))
    sites = [json.dumps({"operation_id": number, "call_site": f"net.py:{number}"}) for number in (1, 2)]
    (folder / "_call_sites.jsonl").write_text("\n".join([*sites, '{"operation_id": 3, "call']), encoding="utf-8")
    (folder / "graph_report").mkdir()
    (folder / "graph_report" / "report.json").write_text("{}", encoding="utf-8")

    for place in (tmp_path / "t", folder):
        found = read_trace_folder(place)
        (one,) = found.seen
        assert sorted((at.call_site, at.count) for at in one.occurrences) == [("", 1), ("net.py:1", 1), ("net.py:2", 1)]
        assert found.unread == ()
