import json
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from torchstone.backends.tt_op_by_op import PHASES, OpRun, ReportError, TensorText, command_line, read_report

ADD = {
    "test_start_ts": "2026-02-11T11:33:02.101",
    "test_end_ts": "2026-02-11T11:33:04.000",
    "success": "True",
    "skipped": "False",
    "error_message": "None",
    "frontend": "tt-xla",
    "model_name": "mod_000_full_model",
    "op_name": "ttir.add",
    "inputs": "[TensorDesc(shape=[1, 128], data_type='bf16', buffer_type=None, layout=None, grid_shape=None), "
    "TensorDesc(shape=[], data_type='f32', buffer_type=None, layout=None, grid_shape=None)]",
    "outputs": "[TensorDesc(shape=[1, 128], data_type='bf16', buffer_type=None, layout=None, grid_shape=None)]",
    "op_params": "None",
}
STOPPED = {**ADD, "success": "False", "error_message": "Last step successfully finished: GENERATED_TTNN."}
BROKEN = {
    **ADD,
    "op_name": "ttir.sort",
    "success": "False",
    "error_message": "TT_FATAL: out of memory",
    "op_params": "dim=1",
}

STAND_IN = """
    import json
    from pathlib import Path


    def pytest_addoption(parser):
        for name in ("--folder", "--ir-file-prefix", "--json-report-file", "--failed-ops-folder"):
            parser.addoption(name)
        parser.addoption("--json-report", action="store_true")


    def pytest_sessionfinish(session):
        config = session.config
        files = sorted(Path(config.getoption("--folder")).glob(config.getoption("--ir-file-prefix") + "*.mlir"))
        properties = [{"total_ops_after_filtering": len(files)}, {"compile_only": "False"}]
        for file in files:
            row = {"success": "True", "op_name": file.read_text().strip(), "error_message": "None"}
            properties.append({"OpTest model for: " + row["op_name"]: row})
        report = {"tests": [{"nodeid": "x", "outcome": "passed", "user_properties": properties}]}
        Path(config.getoption("--json-report-file")).write_text(json.dumps(report))
"""


def report(folder: Path, *ops: dict[str, str], outcome: str = "passed", **others: Any) -> Path:
    properties: list[dict[str, Any]] = [{name: value} for name, value in others.items()]
    properties += [{f"OpTest model for: {op['op_name']}": op} for op in ops]
    test = {"nodeid": "tests/op_by_op", "outcome": outcome, "user_properties": properties, "call": {"outcome": outcome}}
    path = folder / "report.json"
    path.write_text(json.dumps({"exitcode": 0, "tests": [test]}), encoding="utf-8")
    return path


def test_strings_become_facts_and_nothing_is_made_up(tmp_path: Path) -> None:
    found = read_report(report(tmp_path, ADD))

    assert found.ops == (
        OpRun(
            op="ttir.add",
            ran=True,
            skipped=False,
            last_phase="EXECUTED_FLATBUFFER",
            error="",
            model="mod_000_full_model",
            inputs=(TensorText((1, 128), "bf16"), TensorText((), "f32")),
            outputs=(TensorText((1, 128), "bf16"),),
            parameters="",
        ),
    )
    assert (found.ops_before_filtering, found.ops_after_filtering, found.unreported) == (None, None, None)


def test_the_same_op_many_times_is_many_rows(tmp_path: Path) -> None:
    assert len(read_report(report(tmp_path, ADD, ADD, STOPPED)).ops) == 3


def test_a_failure_says_how_far_it_came_or_what_went_wrong(tmp_path: Path) -> None:
    stopped, broken = read_report(report(tmp_path, STOPPED, BROKEN)).ops

    assert (stopped.ran, stopped.last_phase) == (False, "GENERATED_TTNN")
    assert stopped.last_phase in PHASES
    assert (broken.last_phase, broken.error, broken.parameters) == ("", "TT_FATAL: out of memory", "dim=1")


def test_a_failure_without_a_message_is_still_a_failure(tmp_path: Path) -> None:
    (only,) = read_report(report(tmp_path, {**STOPPED, "error_message": "None"})).ops

    assert not only.ran
    assert only.error == "it failed without a message"


def test_what_was_never_run_is_counted(tmp_path: Path) -> None:
    found = read_report(
        report(
            tmp_path,
            ADD,
            total_ops_before_filtering=9,
            total_ops_after_filtering="4",
            extraction_failures=3,
            extraction_failure_details="['a.mlir: CPU-hoisted', 'b.mlir: parse']",
            compile_only="True",
        )
    )

    assert (found.ops_before_filtering, found.ops_after_filtering, found.unreported) == (9, 4, 3)
    assert found.extraction_failures == ("a.mlir: CPU-hoisted", "b.mlir: parse", "not told")
    assert found.compile_only


@pytest.mark.parametrize(
    ("details", "told"), [(["a"], ("a",)), ("half a [list", ("half a [list",)), ("", ()), (None, ())]
)
def test_extraction_failures_are_kept_in_whatever_form_they_come(
    details: Any, told: tuple[str, ...], tmp_path: Path
) -> None:
    assert read_report(report(tmp_path, extraction_failure_details=details)).extraction_failures == told


def test_the_outcome_of_the_test_itself_is_told(tmp_path: Path) -> None:
    path = report(tmp_path, ADD, outcome="failed")
    document = json.loads(path.read_text())
    document["tests"][0]["call"]["crash"] = {"path": "x.py", "lineno": 3, "message": "AssertionError: 1 op failed"}
    path.write_text(json.dumps(document))

    found = read_report(path)
    assert (found.test_outcome, found.test_error) == ("failed", "AssertionError: 1 op failed")


def test_a_run_that_collected_nothing_is_told(tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text('{"tests": []}')

    assert read_report(tmp_path / "report.json").test_outcome == "no test ran"


@pytest.mark.parametrize("content", [None, "", "[]", "{}", "null"])
def test_what_is_no_report_is_told(content: str | None, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    if content is not None:
        path.write_text(content)

    with pytest.raises(ReportError, match=r"report\.json is no report of the op-by-op test"):
        read_report(path)


def test_the_command_line_runs_in_a_checkout_and_leaves_a_report(tmp_path: Path) -> None:
    checkout, irs = tmp_path / "tt-xla", tmp_path / "dump" / "irs"
    tests = checkout / "tests" / "op_by_op"
    for folder in (tests, irs):
        folder.mkdir(parents=True)
    (checkout / "conftest.py").write_text(dedent(STAND_IN))
    (tests / "op_by_op_test.py").write_text("def test_op_by_op():\n    pass\n")
    for name, op in (("ttir_m_g0_1", "ttir.add"), ("ttir_m_g1_1", "ttir.relu"), ("ttnn_m_g0_1", "ttnn.add")):
        (irs / f"{name}.mlir").write_text(op)
    command = command_line(sys.executable, tmp_path / "dump", tmp_path / "r.json", failed_ops=tmp_path / "failed")

    subprocess.run(command, cwd=checkout, check=True, capture_output=True, timeout=600)

    assert [op.op for op in read_report(tmp_path / "r.json").ops] == ["ttir.add", "ttir.relu"]
