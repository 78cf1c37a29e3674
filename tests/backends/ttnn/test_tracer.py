import json
import os
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

import pytest

from tests.capture.ttnn_standin import write_ttnn
from torchstone.backends.ttnn.tracer import TtnnCalls, slow_mode_from_now_on
from torchstone.record.config import SourceEnding

Install = Callable[..., Path]


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What ttnn reads and leaves behind is gone after each test."""
    for name in ("TTNN_CONFIG_OVERRIDES", "TTNN_OPERATION_TRACE_DIR"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "ttnn"]:
        del sys.modules[name]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    def write(**how: str) -> Path:
        monkeypatch.syspath_prepend(write_ttnn(tmp_path / "site", **how))
        return tmp_path / "calls"

    return write


def add_two(rows: int) -> None:
    ttnn = import_module("ttnn")
    ttnn.add(ttnn.Tensor(rows, 4), ttnn.Tensor(rows, 4))


def files_below(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*.json"))


def test_calls_are_written_while_a_source_is_followed_and_at_no_other_time(install: Install) -> None:
    folder = install()
    calls = TtnnCalls(folder)

    with calls.followed("one"):
        add_two(2)
    add_two(3)
    with calls.followed("two"):
        add_two(4)

    assert len(files_below(folder)) == 2
    assert len([path for path in folder.iterdir() if path.is_dir()]) == 2
    assert calls.version == "0.0.standin"
    assert calls.note == ""


def test_the_users_own_trace_folder_is_given_back_also_by_a_source_that_fails(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TTNN_OPERATION_TRACE_DIR", "mine")
    calls = TtnnCalls(install())

    with pytest.raises(AttributeError, match="no_such_operation"), calls.followed("one"):
        import_module("ttnn").no_such_operation()

    assert os.environ["TTNN_OPERATION_TRACE_DIR"] == "mine"
    assert import_module("ttnn.operation_tracer")._ENABLE_TRACE is False


def test_names_and_endings_stand_beside_the_calls(install: Install) -> None:
    folder = install()
    calls = TtnnCalls(folder)
    with calls.followed("test_net.py::test_it"):
        add_two(2)

    calls.tell_ending("test_net.py::test_it", SourceEnding.PASSED.value)
    calls.tell_ending("test_net.py::test_other", SourceEnding.FAILED.value)
    calls.tell_run(traced="test_net.py", run="r1")

    (status,) = folder.glob("*/_status.json")
    assert json.loads(status.read_text()) == {"test_nodeid": "test_net.py::test_it", "status": "passed"}
    assert json.loads((folder / "_trace_metadata.json").read_text()) == {
        "test_source": "test_net.py",
        "trace_uid": "r1",
    }


def test_without_ttnn_nothing_happens_and_nothing_is_said(tmp_path: Path) -> None:
    calls = TtnnCalls(tmp_path / "calls")

    with calls.followed("one"):
        pass
    calls.tell_run(traced="one", run="r1")

    assert (calls.note, calls.version) == ("", "")
    assert not (tmp_path / "calls").exists()


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"before": "raise OSError('libtt_metal.so: not there')\n"}, "OSError: libtt_metal.so: not there"),
        ({"before": "raise SystemExit(1)\n"}, "SystemExit: 1"),
        ({"tracer": ""}, "no operation tracer"),
        ({"tracer": "_ENABLE_TRACE = False\n"}, "no operation tracer"),
        ({"before": "import os; os.environ['TTNN_CONFIG_OVERRIDES'] = '{}'\n"}, "fast mode"),
    ],
)
def test_a_ttnn_that_cannot_be_traced_is_one_sentence(install: Install, how: dict[str, str], said: str) -> None:
    calls = TtnnCalls(install(**how))

    with calls.followed("one"):
        pass

    assert said in calls.note
    assert "not recorded" in calls.note
    assert calls.version == ""


@pytest.mark.parametrize(
    ("given", "asked"),
    [
        ("", {"enable_fast_runtime_mode": False}),
        (
            '{"enable_logging": true, "enable_fast_runtime_mode": true}',
            {"enable_logging": True, "enable_fast_runtime_mode": False},
        ),
    ],
)
def test_the_mode_that_can_be_traced_is_asked_for_beside_what_the_user_asks(
    monkeypatch: pytest.MonkeyPatch, given: str, asked: dict[str, bool]
) -> None:
    monkeypatch.setenv("TTNN_CONFIG_OVERRIDES", given)

    slow_mode_from_now_on()

    assert json.loads(os.environ["TTNN_CONFIG_OVERRIDES"]) == asked


def test_settings_that_ttnn_cannot_read_are_left_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TTNN_CONFIG_OVERRIDES", "{")

    slow_mode_from_now_on()

    assert os.environ["TTNN_CONFIG_OVERRIDES"] == "{"
