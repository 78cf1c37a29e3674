import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.sweep.builders import result, run
from torchstone.errors import UnreadableFileError
from torchstone.record.check import Outcome
from torchstone.record.vector import Status, Validity, Vector
from torchstone.sweep.tt_metal_files import (
    MANIFEST,
    read_results_export,
    read_vectors_export,
    results_export,
    vectors_export,
)

VECTOR = Vector(
    id="abc",
    module="model_traced.add",
    suite="model_traced",
    op="add",
    parameters={"input_a_shape": [1, 32], "arg1": "__ABSENT__", "memory_config": {"buffer_type": "DRAM"}},
)


def written(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def test_vectors_are_written_as_the_runner_of_tt_metal_reads_them(tmp_path: Path) -> None:
    files = vectors_export([VECTOR, replace(VECTOR, id="bad", validity=Validity.INVALID, reason="too large")])

    document = json.loads(files["model_traced.add.json"])["model_traced"]
    assert document["abc"]["input_a_shape"] == "(1, 32)"
    assert document["bad"]["validity"] == "VectorValidity.INVALID"
    assert json.loads(files[MANIFEST])["vector_files"] == ["model_traced.add.json"]
    found = read_vectors_export(written(tmp_path, files))
    assert [(one.id, one.module, one.suite, one.reason) for one in found] == [
        ("abc", "model_traced.add", "model_traced", ""),
        ("bad", "model_traced.add", "model_traced", "too large"),
    ]


def test_results_come_back_with_their_statuses(tmp_path: Path) -> None:
    ends = (Outcome.PASSED, Outcome.WRONG, Outcome.RAISED, Outcome.CRASHED, Outcome.OUT_OF_MEMORY, Outcome.NOT_RUN)
    results = [
        replace(result(f"v{number}", outcome), detail=outcome.value, traceback="Traceback" if number == 2 else "")
        for number, outcome in enumerate(ends)
    ]
    whole = replace(run("r1", *results), commit="abc", started="2026-01-01T00:00:00+00:00")

    back = read_results_export(written(tmp_path, results_export(whole)))

    assert [one.status for one in back.results] == [one.status for one in results]
    assert back.results[4].outcome is Outcome.OUT_OF_MEMORY
    assert (back.commit, back.counts["PASS"], back.selected) == ("abc", 1, 6)
    assert read_results_export(tmp_path).run == back.run


def test_suites_that_are_expected_to_fail_stay_so(tmp_path: Path) -> None:
    row = {"input_hash": "a", "status": "xfail", "full_test_name": "m", "test_case_name": "xfail_odd"}
    (tmp_path / "m_1.json").write_text(json.dumps([row]), encoding="utf-8")

    assert read_results_export(tmp_path).results[0].status is Status.XFAIL


@pytest.mark.parametrize("text", ["{}", "[1]", "no json", '[{"input_hash": "a", "status": "maybe"}]', "[]"])
def test_files_that_are_something_else_are_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.json").write_text(text, encoding="utf-8")

    with pytest.raises(UnreadableFileError):
        read_results_export(tmp_path / "x.json")


@pytest.mark.parametrize("text", ['{"suite": {"id": 3}}', '{"suite": []}', "[]"])
def test_vectors_that_are_something_else_are_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.json").write_text(text, encoding="utf-8")

    with pytest.raises(UnreadableFileError, match="has no suites of vectors"):
        read_vectors_export(tmp_path / "x.json")


@pytest.mark.parametrize("metrics", [3, [3], {"metric_name": 1}, [{"metric_name": ["x"]}], None])
@pytest.mark.parametrize("value", ["fast", True, -1.0])
def test_metrics_that_are_not_times_give_no_time(tmp_path: Path, metrics: object, value: object) -> None:
    rows = [
        {"input_hash": "a", "status": "pass", "metrics": metrics},
        {"input_hash": "b", "status": "pass", "metrics": [{"metric_name": "e2e_perf_ms", "metric_value": value}]},
    ]
    (tmp_path / "m_1.json").write_text(json.dumps(rows), encoding="utf-8")

    assert [one.timing for one in read_results_export(tmp_path).results] == [None, None]


@pytest.mark.parametrize("module", ["/outside", "../../outside", "a/b", "a\\b"])
def test_no_name_in_a_file_leads_out_of_the_folder(module: str) -> None:
    found = [*vectors_export([replace(VECTOR, module=module)])]
    found += results_export(run("1", result("k", module=module), started="", backend=module))

    assert all(Path(name).name == name and "\\" not in name for name in found)


@pytest.mark.parametrize("wrong", [{"started": "yesterday"}, {"started": "", "elapsed_s": 1e300}])
def test_a_time_that_cannot_be_is_named(wrong: dict[str, Any]) -> None:
    with pytest.raises(UnreadableFileError, match=r"the run 1 has a time that cannot be .*run\.json"):
        results_export(run("1", result("k"), **wrong))
