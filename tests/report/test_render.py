import json
from pathlib import Path

import pytest

from tests.report.folders import folder_of
from tests.report.traces import empty_model, hostile_names, one_op, transformer
from torchstone.errors import NewerSchemaError, UnreadableFileError
from torchstone.record.trace import Trace
from torchstone.report.page import REPORT
from torchstone.report.render import FORMATS, write_report


@pytest.mark.parametrize(
    "trace", [transformer(2), transformer(2, fails_in=1), empty_model(), one_op(), hostile_names()]
)
def test_every_trace_becomes_a_page_and_its_twin(tmp_path: Path, trace: Trace) -> None:
    page = write_report(folder_of(trace, tmp_path))

    assert page == tmp_path / "report.html"
    assert page.read_bytes().startswith(b"<!doctype html>")
    twin = json.loads((tmp_path / "report.json").read_bytes())
    assert twin["schema"] == REPORT.name == "torchstone/report/1"
    assert len(twin["sections"]["modules"]["modules"]) == len(trace.modules)
    assert twin["failed"] == (trace.failure is not None)


def test_rendering_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    folder = folder_of(transformer(3), tmp_path)
    first = write_report(folder).read_bytes()

    assert write_report(folder).read_bytes() == first


def test_a_folder_without_results_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFileError, match=r"contains no results to render.*trace\.json"):
        write_report(tmp_path)

    assert list(tmp_path.iterdir()) == []


def test_a_damaged_trace_is_reported_and_nothing_is_written(tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_text('{"schema": "torchstone/trace/1", "modules": 3}')

    with pytest.raises(UnreadableFileError, match=r"trace\.json is not a readable trace file"):
        write_report(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["trace.json"]


def test_a_trace_of_a_newer_torchstone_is_refused_with_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_text('{"schema": "torchstone/trace/99"}')

    with pytest.raises(NewerSchemaError, match="upgrade torchstone"):
        write_report(tmp_path)


def test_without_source_neither_file_names_a_path_or_the_command(tmp_path: Path) -> None:
    folder = folder_of(transformer(2, fails_in=1), tmp_path)
    write_report(folder, source=False)

    twin = (folder / "report.json").read_text(encoding="utf-8")
    assert "/models/net.py" not in twin
    assert "torchstone inspect" not in twin
    assert "--no-source" in (folder / "report.html").read_text(encoding="utf-8")


def test_every_format_can_be_written(tmp_path: Path) -> None:
    folder = folder_of(transformer(1), tmp_path)
    write_report(folder, formats=tuple(FORMATS))

    assert {path.name for path in folder.iterdir()} == {
        "trace.json", "report.json", "report.html", "modules.csv", "operators.csv",
    }  # fmt: skip
