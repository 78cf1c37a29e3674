import json
from pathlib import Path

import pytest
from hypothesis import given, settings

from tests.configs.hostile import broken_documents
from tests.configs.samples import ATEN_TEXT, entry_v2, master_v1, master_v2, old_arguments
from tests.configs.test_ttnn_graph import call as graph_call
from tests.configs.test_ttnn_operations import call as operation_call
from tests.configs.test_ttnn_operations import folder_of
from tests.configs.test_ttnn_report import call as report_call
from torchstone.configs.exchange import export_lines
from torchstone.configs.import_file import import_document, import_path
from torchstone.errors import NewerSchemaError, UnreadableFileError
from torchstone.record.config import TraceFormat


@pytest.mark.parametrize(
    ("document", "form"),
    [
        (master_v1({"arguments": old_arguments(), "source": "x"}), TraceFormat.TTNN_MASTER_V1),
        (master_v2(entry_v2({"arg0": 1})), TraceFormat.TTNN_MASTER_V2),
        (graph_call(0, "ttnn::relu"), TraceFormat.TTNN_GRAPH),
        (operation_call(), TraceFormat.TTNN_OPERATION_TRACE),
        ({"version": 1, "graph": [], "python_io": [report_call(1)]}, TraceFormat.TTNN_GRAPH_REPORT),
    ],
)
def test_json_is_told_apart_by_looking(tmp_path: Path, document: object, form: TraceFormat) -> None:
    path = tmp_path / "anything"
    path.write_text(json.dumps(document))

    imported = import_path(path)

    assert [run.format for run in imported.runs] == [form]
    assert len(imported.seen) == 1


def test_a_text_trace_takes_the_model_it_is_given(tmp_path: Path) -> None:
    path = tmp_path / "Albert_training.txt"
    path.write_text(ATEN_TEXT)

    assert {place.model for one in import_path(path).seen for place in one.occurrences} == {"Albert_training"}
    assert {place.model for one in import_path(path, model="m").seen for place in one.occurrences} == {"m"}


def test_a_run_is_named_after_the_contents_of_its_file(tmp_path: Path) -> None:
    runs = []
    for name, text in (("a.txt", ATEN_TEXT), ("b.txt", ATEN_TEXT), ("c.txt", ATEN_TEXT + "\n")):
        (tmp_path / name).write_text(text)
        runs.append(import_path(tmp_path / name).runs[0].run)

    assert runs[0] == runs[1] != runs[2]


def test_a_folder_of_operation_traces(tmp_path: Path) -> None:
    assert len(import_path(folder_of(tmp_path / "t", operation_call())).seen) == 1


def test_what_we_export_ourselves_comes_back(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(ATEN_TEXT)
    one = import_path(tmp_path / "a.txt")
    (tmp_path / "a.jsonl").write_text(export_lines(one.runs, one.seen).text)

    again = import_path(tmp_path / "a.jsonl")

    assert (again.runs, again.seen) == (one.runs, one.seen)


def test_the_calls_of_a_report_may_stand_beside_it(tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text(json.dumps({"version": 1, "graph": []}))
    (tmp_path / "r.json.python_io.json").write_text(json.dumps([report_call(1)]))

    assert len(import_path(tmp_path / "r.json").seen) == 1


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"\xff\xfe", "not UTF-8"),
        (b"hello", "neither JSON"),
        (b"", "neither JSON"),
        (b"{", "neither JSON"),
        (b"[" * 100_000, "neither JSON"),
        (b'{"a": 1}', "an unknown format"),
        (b"[1]", "an unknown format"),
        (b"3", "an unknown format"),
        (b'{"schema":"torchstone/trace/1"}', "not a torchstone configurations file"),
    ],
)
def test_a_file_of_no_known_format_is_refused_in_one_sentence(tmp_path: Path, content: bytes, reason: str) -> None:
    (tmp_path / "x").write_bytes(content)

    with pytest.raises(UnreadableFileError, match=reason):
        import_path(tmp_path / "x")


def test_a_file_of_a_newer_torchstone_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_text('{"schema":"torchstone/configurations/99"}\n')

    with pytest.raises(NewerSchemaError, match="upgrade"):
        import_path(tmp_path / "x")


def test_missing_files_and_empty_folders_are_named(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFileError, match="cannot read"):
        import_path(tmp_path / "missing")
    with pytest.raises(UnreadableFileError, match="has no traces"):
        import_path(tmp_path)


@settings(max_examples=200)
@given(broken_documents)
def test_a_broken_document_gives_configurations_or_one_sentence(document: object) -> None:
    try:
        imported = import_document(document, Path("x.json"), "1")
    except UnreadableFileError:
        return
    assert all(one.key for one in imported.seen)


def test_half_a_letter_is_spelled_out(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(
        '{"operations": {"ttnn::a": {"configurations": [{"arguments": {"k\\ud800": "\\udc00 \\ud83e\\udd99"}}]}}}'
    )

    (one,) = import_path(path).seen

    assert one.key
    assert [(part.name, part.value) for part in one.configuration.arguments] == [("k\\ud800", "\\udc00 🦙")]


def test_a_report_of_ttnn_0_81_is_read_with_the_file_beside_it(tmp_path: Path) -> None:
    start = {"counter": 0, "node_type": "capture_start", "params": None, "connections": [], "stacking_level": 0}
    (tmp_path / "report.json").write_text(json.dumps({"version": 1, "graph": [start]}))
    (tmp_path / "report.python_io.json").write_text(json.dumps([report_call(1)]))

    assert len(import_path(tmp_path / "report.json").seen) == 1


def test_a_report_without_calls_is_refused(tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text(json.dumps({"version": 1, "graph": []}))

    with pytest.raises(UnreadableFileError, match="without any op call"):
        import_path(tmp_path / "report.json")
