"""Runs a test or script of ttnn in the environment that has ttnn: its calls and its memory as files.

Needs ttnn, torch (which ttnn's tracer itself needs) and, for tests, pytest; nothing of torchstone's own dependencies.
"""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeAlias

from torchstone.backends.ttnn.tracer import TtnnCalls

Payload: TypeAlias = Mapping[str, Any]  # what the parent sends: JSON
Answer: TypeAlias = dict[str, Any]

_NO_TESTS = 5
_RAN = (0, 1)  # pytest: all passed, some failed
_FAILED, _PASSED = "failed", "passed"


def trace(payload: Payload) -> Answer:
    """Run the target; how each source ended, or in `refusal` why nothing ran."""
    os.chdir(payload["folder"])
    sys.path.insert(0, payload["folder"])
    calls = TtnnCalls(Path(payload["files"]), memory=True)
    run = _run_tests if payload["kind"] == "pytest" else _run_script
    answer = run(payload, calls)
    calls.finish()
    for source in answer.get("sources", ()):
        calls.tell_ending(source["name"], source["ending"])
    model = os.environ.get("HF_MODEL")
    target = payload["target"]
    calls.tell_run(traced=f"{target} [HF_MODEL:{model}]" if model else target, run=payload["run"])
    return {"note": calls.note, "ttnn": calls.version, **answer}


class _Followed:
    """One source; the plugin for pytest opens it for the set-up and for the call."""

    def __init__(self, calls: TtnnCalls, name: str) -> None:
        self._calls, self._name = calls, name

    def opened(self) -> AbstractContextManager[None]:
        return self._calls.followed(self._name)


def _run_tests(payload: Payload, calls: TtnnCalls) -> Answer:
    try:
        import pytest
    except ModuleNotFoundError:
        return {"refusal": f"{sys.executable} has no pytest; run `torchstone ttnn setup` without --no-torch"}
    from torchstone.capture.trace_pytest import RecordingPlugin

    class Plugin(RecordingPlugin[_Followed]):
        def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
            """Write at once how a test ended: a later one may end the process."""
            super().pytest_runtest_logreport(report)
            if report.nodeid in self.endings:
                calls.tell_ending(report.nodeid, self.endings[report.nodeid])

    plugin = Plugin(lambda name: _Followed(calls, name))
    options = ["-p", "no:cacheprovider", *payload["arguments"]]
    code = int(pytest.main([payload["target"], *options], plugins=[plugin, _devices(payload)]))
    if code not in _RAN:
        why = "found no test there" if code == _NO_TESTS else f"ended with its exit code {code}"
        return {"refusal": f"pytest {why}; try `{sys.executable} -m pytest {payload['target']}` first"}
    return {
        "sources": [
            {"name": name, "ending": plugin.endings.get(name, _FAILED), "detail": plugin.details.get(name, "")}
            for name in plugin.recordings
        ]
    }


def _devices(payload: Payload) -> object:
    """The fixtures that tests of tt-metal expect; a conftest.py that has its own replaces them."""
    import pytest

    class Devices:
        @pytest.fixture
        def device_params(self, request: pytest.FixtureRequest) -> dict[str, object]:
            """What `device` is opened with."""
            return dict(getattr(request, "param", None) or {"l1_small_size": payload["l1_small_bytes"]})

        @pytest.fixture
        def device(self, device_params: dict[str, object]) -> Iterator[object]:
            """One chip."""
            import ttnn

            opened = ttnn.open_device(device_id=0, **device_params)
            yield opened
            ttnn.close_device(opened)

        @pytest.fixture
        def mesh_device(self, request: pytest.FixtureRequest, device_params: dict[str, object]) -> Iterator[object]:
            """The chips of the board, or those that a test asks for: a number or a pair."""
            import ttnn

            asked = getattr(request, "param", None) or payload["mesh"]
            rows, columns = (1, asked) if isinstance(asked, int) else asked
            known = {name: value for name, value in device_params.items() if name != "fabric_config"}
            if rows * columns > 1:
                fabric = device_params.get("fabric_config", ttnn.FabricConfig.FABRIC_1D)
                ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D if fabric is True else fabric)
            opened = ttnn.open_mesh_device(mesh_shape=ttnn.MeshShape(rows, columns), **known)
            yield opened
            ttnn.close_mesh_device(opened)

    return Devices()


def _run_script(payload: Payload, calls: TtnnCalls) -> Answer:
    target = payload["target"]
    sys.argv = [target, *payload["arguments"]]
    sys.path.insert(0, str(Path(target).resolve().parent))
    name = " ".join(sys.argv)
    error: BaseException | None = None
    try:
        with calls.followed(name):
            runpy.run_path(target, run_name="__main__")
    except SystemExit as end:
        error = end if end.code not in (None, 0) else None
    except BaseException as raised:  # noqa: BLE001 - the border to the user's program
        error = raised
    detail = "" if error is None else " ".join(f"{type(error).__name__}: {error}".split())
    return {"sources": [{"name": name, "ending": _PASSED if error is None else _FAILED, "detail": detail}]}
