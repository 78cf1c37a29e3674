"""Bundles of findings, and the same bundles on another version."""

import json
import sys
import zipfile
from pathlib import Path

import msgspec
import pytest

from tests.check.results import check_result, finding
from torchstone.check.bug_report import SCRIPT, report_text, tracker_of
from torchstone.check.bundle import REPORT, Bundle, run_script, unpack, watch, write_bundle
from torchstone.check.summary import find_finding
from torchstone.errors import InputError, UnreadableFileError
from torchstone.record.check import Rung, Twin
from torchstone.record.codec import save

PATIENCE_S = 120.0
FAILS = """
import sys
from pathlib import Path
version = Path({version!r}).read_text()
if version == "mended":
    print("outcome: passed")
    sys.exit(0)
if version == "absent":
    print("no backend here")
    sys.exit(2)
print("relative error 0.25" if version == "old" else "another error")
sys.exit(1)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A check with one finding, a script that asks a file which version it runs on, and MLIR."""
    result = check_result(finding(repro="repros/001_aten_mm_default.py", code="TS-CHK-001"))
    save(tmp_path / "check.json", result)
    (tmp_path / "version").write_text("old")
    script = tmp_path / "repros" / "001_aten_mm_default.py"
    script.parent.mkdir()
    script.write_text(FAILS.format(version=str(tmp_path / "version")))
    ir = tmp_path / "irs/mod_layers.0/aten.txt"
    ir.parent.mkdir(parents=True)
    ir.write_text("module { func.func @main() { return } }")
    return tmp_path


def test_a_bundle_has_the_script_the_ir_and_a_report(folder: Path) -> None:
    written = write_bundle(folder, "1", None, python=sys.executable, deadline_s=PATIENCE_S)

    with zipfile.ZipFile(written) as archive:
        names = set(archive.namelist())
        report = archive.read(REPORT).decode()
        about = json.loads(archive.read("bundle.json"))
    assert names == {"bundle.json", REPORT, SCRIPT, "irs/mod_layers.0/aten.mlir"}
    assert report.startswith("# aten.mm.default: wrong (faulty)")
    assert "TS-CHK-001" in report
    assert about["run"] == {"state": "fails", "exit_code": 1, "last_lines": "relative error 0.25"}


@pytest.mark.parametrize(
    ("version", "state"),
    [("old", "still fails"), ("mended", "fixed"), ("new", "changed"), ("absent", "could not run")],
)
def test_a_bundle_is_tried_again(folder: Path, version: str, state: str) -> None:
    written = write_bundle(folder, "finding_001", folder / "b.zip", python=sys.executable, deadline_s=PATIENCE_S)
    (folder / "version").write_text(version)

    (found,) = watch([written], sys.executable, deadline_s=PATIENCE_S, say=lambda _: None)

    assert found.state == state


def test_a_script_that_hangs_is_ended(tmp_path: Path) -> None:
    (tmp_path / "hangs.py").write_text("import time\ntime.sleep(1000)\n")

    assert run_script(tmp_path / "hangs.py", sys.executable, 0.5).state == "hangs"


def test_a_script_runs_under_the_settings_that_its_backend_lists(folder: Path) -> None:
    backend = folder / "mine.py"
    backend.write_text(
        "from torchstone.backends.eager import Eager\n\n\nclass Mine(Eager):\n"
        "    variants = {'mended': {'MENDED': '1'}, 'as it is': {}}\n"
    )
    save(folder / "check.json", check_result(finding(), backend=f"{backend}::Mine"))
    (folder / "repros/001_aten_mm_default.py").write_text("import os, sys\nsys.exit('MENDED' not in os.environ)\n")

    written = write_bundle(folder, "1", None, python=sys.executable, deadline_s=PATIENCE_S)

    with zipfile.ZipFile(written) as archive:
        report = archive.read(REPORT).decode()
    assert "With other settings of the compiler:\n\n- mended: passes\n- as it is: fails" in report


def test_what_is_not_a_bundle_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_text("no zip")
    with zipfile.ZipFile(tmp_path / "b.zip", "w") as archive:
        archive.writestr("other.txt", "x")

    for name in ("a.zip", "b.zip"):
        with pytest.raises(UnreadableFileError, match="is not a bundle"):
            unpack(tmp_path / name, tmp_path)


def test_what_is_executed_is_named_first(folder: Path) -> None:
    lines: list[str] = []
    write_bundle(folder, "1", None, python=sys.executable, deadline_s=PATIENCE_S, say=lines.append)

    assert lines == [f"executing {folder}/repros/001_aten_mm_default.py with {sys.executable} ..."]


@pytest.mark.parametrize("kind", ["repro", "ir", "link"])
def test_a_file_outside_the_folder_is_neither_run_nor_sent(folder: Path, tmp_path: Path, kind: str) -> None:
    outside = tmp_path.parent / f"{tmp_path.name}_outside"
    outside.mkdir()
    (outside / "secret.py").write_text(f"open({str(outside / 'ran')!r}, 'w')")
    result = check_result(finding(repro="repros/001_aten_mm_default.py"))
    if kind == "repro":
        result = check_result(finding(repro=f"../{outside.name}/secret.py"))
    elif kind == "ir":
        *others, last = result.modules
        last = msgspec.structs.replace(last, irs=(f"../{outside.name}/secret.py",))
        found = msgspec.structs.replace(result.findings[0], modules=(last.id,))
        result = msgspec.structs.replace(result, modules=(*others, last), findings=(found,))
    else:
        (folder / "repros" / "001_aten_mm_default.py").unlink()
        (folder / "repros" / "001_aten_mm_default.py").symlink_to(outside / "secret.py")
    save(folder / "check.json", result)

    with pytest.raises(InputError, match=r"is outside|not a file below the folder"):
        write_bundle(folder, "1", None, python=sys.executable, deadline_s=PATIENCE_S)
    assert not (outside / "ran").exists()
    assert not (folder / "bundles" / "finding_001.zip").exists()


def test_a_bundle_writes_nothing_outside_its_folder(folder: Path, tmp_path: Path) -> None:
    written = write_bundle(folder, "1", tmp_path / "b.zip", python=sys.executable, deadline_s=PATIENCE_S)
    with zipfile.ZipFile(written, "a") as archive:
        archive.writestr("../evil.py", "x")
        archive.writestr("/tmp/evil_too.py", "x")  # noqa: S108 - what a hostile zip might have
    inside = tmp_path / "inside"
    inside.mkdir()

    unpack(written, inside)

    assert sorted(path.name for path in inside.iterdir()) == ["bundle.json", REPORT, SCRIPT]
    assert not (tmp_path / "evil.py").exists()


def test_an_unknown_finding_is_refused() -> None:
    result = msgspec.structs.replace(check_result(finding()), model="x")

    assert find_finding(result, "1").id == "finding_001"
    with pytest.raises(InputError, match="there is no finding '7' in this check; it has finding_001"):
        find_finding(result, "7")


@pytest.mark.parametrize(
    ("backend", "headings"),
    [
        ("inductor", ["🐛 Describe the bug", "Error logs", "Versions"]),
        ("onnxruntime", ["Describe the issue", "To reproduce", "Urgency", "Platform", "OS Version",
                         "ONNX Runtime Installation", "ONNX Runtime Version or Commit ID", "ONNX Runtime API",
                         "Architecture", "Execution Provider"]),
        ("iree", ["What happened?", "Steps to reproduce your issue", "What component(s) does this issue relate to?",
                  "Version information", "Additional context"]),
        ("tt", ["Describe the bug", "Steps to reproduce the issue", "Expected behavior",
                "Please complete the following environment information"]),
        ("mine.py::Mine", ["Describe the bug", "To reproduce", "Expected behavior", "Output",
                           "Where it is in the model", "In other forms, and what makes it pass", "Environment"]),
    ],
)  # fmt: skip
def test_a_report_has_the_headings_of_the_tracker_of_its_backend(backend: str, headings: list[str]) -> None:
    forms = (
        Rung(form="torch", file="repros/001_x.py", outcome="wrong"),
        Rung(form="ONNX", file="x/onnx.py", outcome="wrong"),
    )
    twin = Twin(change="in float64 in place of float32", file="repros/001_x/passes.py")
    one = msgspec.structs.replace(finding(), ladder=forms, twin=twin)
    about = Bundle(
        model="m", backend=backend, backend_version="1.2", backend_options={}, python="3.11", platform="Linux-6",
        finding=one,
    )  # fmt: skip

    text = report_text(about, [])

    assert [line[4:] for line in text.splitlines() if line.startswith("### ")] == headings
    assert "it passes in float64 in place of float32 (repros/001_x/passes.py)" in text
    assert "wrong as ONNX (x/onnx.py)" in text
    assert (tracker_of(backend).tracker in text) is True


def test_a_bundle_has_the_other_forms_and_the_twin(folder: Path) -> None:
    one = finding()
    home = one.repro.removesuffix(".py")
    rungs = (Rung(form="torch", file=one.repro), Rung(form="ONNX", file=f"{home}/onnx.py", outcome="wrong"))
    (folder / home).mkdir()
    for name in ("onnx", "passes"):
        (folder / home / f"{name}.py").write_text(name)
    twin = Twin(change="with contiguous tensors", file=f"{home}/passes.py")
    save(folder / "check.json", check_result(msgspec.structs.replace(one, ladder=rungs, twin=twin)))

    written = write_bundle(folder, "1", None, python=sys.executable, deadline_s=PATIENCE_S)

    with zipfile.ZipFile(written) as archive:
        assert archive.read("repro_onnx.py") == b"onnx"
        assert archive.read("repro_passes.py") == b"passes"


def test_a_folder_of_somebody_else_is_packed_and_nothing_in_it_is_executed(folder: Path) -> None:
    """Neither the script, nor the interpreter, nor the file of the backend that check.json names."""
    ran = folder / "ran"
    planted = folder / "planted"
    planted.write_text(f"#!/bin/sh\ntouch {ran}\n")
    planted.chmod(0o755)
    for name in ("mine.py", "repros/001_aten_mm_default.py"):
        (folder / name).write_text(f"open({str(ran)!r}, 'w')\n")
    result = check_result(finding(), backend=f"{folder / 'mine.py'}::Mine")
    save(folder / "check.json", msgspec.structs.replace(result, python=str(planted)))

    written = write_bundle(folder, "1", None)

    assert not ran.exists()
    with zipfile.ZipFile(written) as archive:
        assert json.loads(archive.read("bundle.json"))["run"] is None
        assert SCRIPT in archive.namelist()


def test_the_interpreter_that_a_check_names_is_not_started(folder: Path) -> None:
    planted = folder / "planted"
    planted.write_text(f"#!/bin/sh\ntouch {folder / 'ran'}\n")
    planted.chmod(0o755)
    result = check_result(finding(repro="repros/001_aten_mm_default.py"))
    save(folder / "check.json", msgspec.structs.replace(result, python=str(planted)))

    written = write_bundle(folder, "1", None, python=sys.executable, deadline_s=PATIENCE_S)

    assert not (folder / "ran").exists()
    with zipfile.ZipFile(written) as archive:
        assert json.loads(archive.read("bundle.json"))["run"]["state"] == "fails"


@pytest.mark.parametrize(("version", "state"), [("old", "still fails"), ("mended", "fixed")])
def test_a_bundle_whose_script_was_not_run_can_be_tried(folder: Path, version: str, state: str) -> None:
    written = write_bundle(folder, "1", folder / "b.zip")
    (folder / "version").write_text(version)

    (found,) = watch([written], sys.executable, deadline_s=PATIENCE_S, say=lambda _: None)

    assert found.state == state
