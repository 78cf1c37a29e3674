import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch

from tests.check import planted_net
from tests.check.killed import finish, kill_after, start, without_times
from torchstone.capture.capture_model import capture
from torchstone.check.check_model import Subject, _open_folder, run_check
from torchstone.check.settings import Folder, Settings
from torchstone.errors import InputError
from torchstone.record.check import CheckResult, Outcome
from torchstone.record.task import Limits
from torchstone.workflows.check import STAGES, check_model

MODEL = f"{planted_net.__file__}::load_model"
PLANTED: Mapping[str, Mapping[str, Any]] = {  # the failing op -> the fault
    "aten.addmm.default": {"fault": "wrong", "op": "aten.addmm.default", "shape": [24]},
    "aten.cosh.default": {"fault": "crash", "op": "aten.cosh.default"},
    "aten.maximum.default": {"fault": "wrong", "op": "aten.maximum.default"},
    "aten.sinh.default": {"fault": "unsupported", "op": "aten.sinh.default"},
    "aten.expm1.default": {"fault": "raise", "op": "aten.expm1.default"},
    "aten.relu.default": {"fault": "abort", "op": "aten.relu.default", "shape": [3, 2, 8]},
    "aten.lerp.Scalar": {"fault": "nan", "op": "aten.lerp.Scalar"},
    "aten.cumsum.default": {"fault": "scaled", "op": "aten.cumsum.default"},
    "aten.atan.default": {"fault": "compile_error", "op": "aten.atan.default"},
    "aten.exp.default + aten.sin.default": {"fault": "wrong", "op": "aten.sin.default", "after": "aten.exp.default"},
}
EXPECTED = {
    "aten.addmm.default": ("layers.7.up", Outcome.WRONG),
    "aten.cosh.default": ("heads.1", Outcome.CRASHED),
    "aten.maximum.default": ("glue", Outcome.WRONG),
    "aten.sinh.default": ("pair.sine", Outcome.UNSUPPORTED),
    "aten.expm1.default": ("pair.exponent", Outcome.RAISED),
    "aten.relu.default": ("clip", Outcome.CRASHED),
    "aten.lerp.Scalar": ("keyword", Outcome.WRONG),
    "aten.cumsum.default": ("gives", Outcome.WRONG),
    "aten.atan.default": ("first_use.shared", Outcome.COMPILE_ERROR),
    "aten.exp.default + aten.sin.default": ("together", Outcome.WRONG),
}


def checked(folder: Path, faults: Sequence[Mapping[str, Any]], **settings: Any) -> CheckResult:
    chosen = Settings(backend="faulty", options={"faults": list(faults)}, exports_ir=False, **settings)
    return run_check(Subject(model=MODEL), chosen, Folder(path=folder), stages=STAGES)


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, CheckResult]:
    """The model with all faults planted at once."""
    folder = tmp_path_factory.mktemp("check")
    return folder, checked(folder, list(PLANTED.values()))


def test_exactly_the_planted_faults_are_found(everything: tuple[Path, CheckResult]) -> None:
    _, result = everything

    found = {" + ".join(finding.ops): (finding.module_path, finding.outcome) for finding in result.findings}

    assert found == EXPECTED
    assert len(result.findings) == len(PLANTED)


def test_every_finding_has_a_script_that_was_run_and_fails(everything: tuple[Path, CheckResult]) -> None:
    folder, result = everything

    assert [finding.ops for finding in result.findings if not finding.confirmed] == []
    assert [finding.ops for finding in result.findings if not (folder / finding.repro).is_file()] == []


def test_statuses_and_outcomes_stand_in_unique_modules_json(everything: tuple[Path, CheckResult]) -> None:
    folder, _ = everything

    document = json.loads((folder / "unique_modules.json").read_text())

    assert document["schema"] == "torchstone/unique_modules/1"
    statuses = {module["module_path"]: module["status"] for module in document["modules"]}
    assert statuses["layers.7"] == statuses["layers.7.up"] == "failed"
    assert statuses["layers.0"] == "success"
    assert statuses["layers.0.up"] == "inherited_success"
    assert statuses["layers"] == "skipped"
    assert statuses["pair"] == "failed"


def test_only_the_bad_shape_of_a_module_is_blamed(everything: tuple[Path, CheckResult]) -> None:
    _, result = everything

    (clip,) = (module for module in result.modules if module.module_path == "clip")
    assert [(call.inputs, call.result and call.result.outcome) for call in clip.checked_calls] == [
        (("float32[3, 5, 8]",), Outcome.PASSED),
        (("float32[3, 2, 8]",), Outcome.CRASHED),
    ]


def test_a_crash_leaves_its_evidence(everything: tuple[Path, CheckResult]) -> None:
    _, result = everything

    (head,) = (module for module in result.modules if module.module_path == "heads.1")
    assert head.evidence is not None
    assert head.evidence.signal == "SIGSEGV"


@pytest.mark.heavy
def test_a_hang_ends_at_its_deadline_and_is_found(tmp_path: Path) -> None:
    fault = {"fault": "hang", "op": "aten.maximum.default"}

    result = checked(tmp_path, [fault], limits=Limits(deadline_s=5.0), only="glue")

    assert [(finding.ops, finding.outcome, finding.confirmed) for finding in result.findings] == [
        (("aten.maximum.default",), Outcome.TIMED_OUT, True)
    ]


@pytest.mark.heavy
def test_a_module_in_memory_is_checked_by_its_recorded_ops() -> None:
    model, x = planted_net.Head(bent=True), torch.randn(2, planted_net.WIDTH)
    trace = capture(model, x, "cpu", reuse=False)
    settings = Settings(backend="faulty", options={"faults": [PLANTED["aten.cosh.default"]]}, exports_ir=False)

    result = check_model(trace, model=model, inputs=x, settings=settings)

    assert result.form == "program"
    assert [finding.ops for finding in result.findings] == [("aten.cosh.default",)]


@pytest.mark.heavy
def test_a_backend_in_another_environment_runs_the_recorded_ops(tmp_path: Path) -> None:
    result = checked(tmp_path, [PLANTED["aten.cosh.default"]], python=sys.executable)

    assert result.form == "program"
    assert [(finding.ops, finding.confirmed) for finding in result.findings] == [(("aten.cosh.default",), True)]


@pytest.mark.heavy
def test_after_a_kill_a_resumed_check_ends_as_an_undisturbed_one(
    everything: tuple[Path, CheckResult], tmp_path: Path
) -> None:
    planted = [dict(fault) for fault in PLANTED.values()]
    assert kill_after(tmp_path, 40, start(MODEL, tmp_path, planted, resume=False))

    finish(MODEL, tmp_path, planted, resume=True)

    for name in ("unique_modules.json", "check.json"):
        assert without_times(tmp_path / name) == without_times(everything[0] / name)


@pytest.mark.heavy
def test_fifty_kills_at_random_moments_change_nothing(tmp_path: Path) -> None:
    planted = [dict(fault) for fault in PLANTED.values()]
    began_s = time.monotonic()
    finish(MODEL, tmp_path / "whole", planted, resume=False)
    took_s = time.monotonic() - began_s
    whole = without_times(tmp_path / "whole" / "unique_modules.json")
    random = Random(0)  # noqa: S311 - moments, not secrets
    kills = 0
    while kills < 50:
        process = start(MODEL, tmp_path / "cut", planted, resume=kills % 10 != 0)  # a fresh one every ten kills
        try:
            process.wait(timeout=random.uniform(0.5, took_s))
        except subprocess.TimeoutExpired:
            process.kill()
            kills += 1
        process.communicate()

    finish(MODEL, tmp_path / "cut", planted, resume=True)

    assert without_times(tmp_path / "cut" / "unique_modules.json") == whole


def test_another_check_is_not_resumed(everything: tuple[Path, CheckResult]) -> None:
    settings = Settings(backend="faulty", options={"faults": [{"fault": "wrong"}]}, exports_ir=False)

    with pytest.raises(InputError, match="was created with a different set of backend options; drop --resume"):
        run_check(Subject(model=MODEL), settings, Folder(path=everything[0]), stages=STAGES, resume=True)


def test_a_folder_that_is_somebody_elses_loses_nothing(tmp_path: Path) -> None:
    for name in ("tests/test_own.py", "repros/notes.txt", "check_work_of_mine.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("mine")
    for _ in range(2):
        _open_folder(Folder(path=tmp_path), {"model": "x"}, resume=False)

    for name in ("tests/test_own.py", "repros/notes.txt", "check_work_of_mine.txt"):
        assert (tmp_path / name).read_text() == "mine"


def test_a_trace_that_another_command_left_is_not_taken_for_that_of_the_check(tmp_path: Path) -> None:
    for known, expected in ((False, False), (True, True)):
        folder = Folder(path=tmp_path / str(known))
        folder.path.mkdir()
        folder.trace.write_text("{}", encoding="utf-8")
        _open_folder(folder, {"model": "x"}, resume=False, has_trace=known)
        assert folder.trace.is_file() == expected


def test_an_earlier_check_is_removed_so_that_what_is_left_can_be_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process ends half way: no value counts as recorded, and the folder is still known as one of a check."""
    folder = Folder(path=tmp_path)
    _open_folder(folder, {"model": "x"}, resume=False)
    folder.values.mkdir()
    for path in (folder.recorded_marker, folder.journal, folder.trace):
        path.write_text("{}", encoding="utf-8")

    def end(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("torchstone.check.check_model.shutil.rmtree", end)
    with pytest.raises(KeyboardInterrupt):
        _open_folder(folder, {"model": "y"}, resume=False)

    assert not folder.recorded_marker.exists()
    assert not folder.trace.exists()
    assert folder.about.is_file()
