from pathlib import Path

import pytest

from tests.report.folders import folder_of
from tests.report.traces import transformer
from torchstone.errors import NewerSchemaError, UnreadableFileError
from torchstone.workflows.model_source import ModelRequest, load_trace, saved_trace


def test_a_folder_with_a_trace_stands_for_it(tmp_path: Path) -> None:
    trace = transformer(1)
    folder = folder_of(trace, tmp_path)

    assert saved_trace(str(folder)) == folder / "trace.json"
    assert load_trace(ModelRequest(model=str(folder))) == trace


def test_the_trace_file_itself_will_do(tmp_path: Path) -> None:
    trace = transformer(1)
    file = (folder_of(trace, tmp_path) / "trace.json").rename(tmp_path / "kept.json")

    assert load_trace(ModelRequest(model=str(file))) == trace


@pytest.mark.parametrize("content", [b"", b"{}", b'{"model_type": "bert"}'])
def test_another_json_file_is_no_trace(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_bytes(content)

    assert saved_trace(str(file)) is None
    assert saved_trace(str(tmp_path)) is None


def test_a_trace_of_a_newer_torchstone_is_refused(tmp_path: Path) -> None:
    file = folder_of(transformer(1), tmp_path) / "trace.json"
    file.write_bytes(file.read_bytes().replace(b"torchstone/trace/2", b"torchstone/trace/99"))

    with pytest.raises(NewerSchemaError, match="upgrade torchstone"):
        load_trace(ModelRequest(model=str(tmp_path)))


def test_a_name_too_long_for_a_file_is_refused_in_one_sentence() -> None:
    with pytest.raises(UnreadableFileError, match="File name too long"):
        saved_trace("n" * 5000)
