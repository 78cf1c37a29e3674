from pathlib import Path
from typing import Any

import pytest

import torchstone as ts
from tests.report.folders import folder_of
from tests.report.traces import transformer
from torchstone.errors import InputError, NewerSchemaError, UnreadableFileError
from torchstone.models.inputs import InputOptions
from torchstone.workflows.model_source import ModelRequest, as_arguments, load_trace, require_values, saved_trace


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


@pytest.mark.parametrize(
    ("request_without_values", "reason"),
    [
        (ModelRequest(model="tiny:bert", mode="fake"), "^a check needs real values, which --mode fake does not have;"),
        (ModelRequest(model="tiny:bert", backward=True), "^a check covers the forward pass only; drop --backward$"),
    ],
)
def test_a_request_without_values_is_refused_by_name(request_without_values: ModelRequest, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        require_values(request_without_values, "a check")


def test_a_saved_trace_has_no_values(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a finished run, which has no values; give the model itself"):
        require_values(ModelRequest(model=str(folder_of(transformer(1), tmp_path))), "a check")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"options": InputOptions(batch_size=16)}, "so --batch-size cannot be changed"),
        ({"options": InputOptions(phase="decode", cache_len=7)}, "so --phase, --cache-len cannot be changed"),
        ({"options": InputOptions(dtype="bfloat16", layers=2)}, "so --dtype, --layers cannot be changed"),
        ({"options": InputOptions(pretrained=True, text=("a",))}, "so --pretrained, --text cannot be changed"),
        ({"inputs": "file.py::inputs"}, "so --inputs cannot be changed"),
        ({"backward": True}, "is a finished run without a backward pass"),
    ],
)
def test_a_saved_trace_does_not_pass_for_a_run_with_other_options(
    changes: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=reason):
        load_trace(ModelRequest(model=str(folder_of(transformer(1), tmp_path)), **changes))


@pytest.mark.parametrize(
    ("options", "written"),
    [
        (InputOptions(), ""),
        (InputOptions(batch_size=2, phase="decode", cache_len=7), " --batch-size 2 --phase decode --cache-len 7"),
        (InputOptions(pretrained=True, text=("a b", "c")), " --pretrained --text 'a b' --text c"),
    ],
)
def test_a_request_is_written_as_the_command_line_that_makes_it(options: InputOptions, written: str) -> None:
    assert as_arguments(ModelRequest(model="gpt2", options=options)) == f"gpt2{written}"
    request = ModelRequest(model="net.py::f", inputs="net.py::g", options=options)
    assert as_arguments(request) == f"net.py::f --inputs net.py::g{written}"


@pytest.mark.parametrize("name", ["tiny:llama", "tiny:t5"])
def test_a_decode_step_on_real_tensors_has_a_cache_with_values(name: str) -> None:
    """Whether it is asked for by a command or from Python."""
    options = InputOptions(phase="decode", cache_len=5)
    without, real = (load_trace(ModelRequest(model=name, options=options, mode=mode)) for mode in ("fake", "cpu"))
    called = ts.trace(name, mode="cpu", options=options)

    for trace in (real, called):
        assert trace.failure is None
        assert trace.provenance.mode == "cpu"
        assert [call.op for call in trace.ops] == [call.op for call in without.ops]
