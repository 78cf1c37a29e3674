from xml.etree import ElementTree

import msgspec
from msgspec.structs import replace

from tests.check.results import check_result, finding, module
from tests.report.test_comparison_text import comparison, errors, verdict
from tests.sweep.builders import result, run
from torchstone.record.check import Blame
from torchstone.record.reference import SetupCheck, Status
from torchstone.report.checks_ci import budget_for_ci, check_for_ci, comparison_for_ci
from torchstone.report.ci import CiResults, github_annotations, github_summary, junit_xml
from torchstone.report.sweep_ci import sweep_for_ci


def kinds(results: CiResults) -> dict[str, str]:
    root = ElementTree.fromstring(junit_xml(results))  # noqa: S314 - our own text
    return {case.attrib["name"]: next((one.tag for one in case), "passed") for suite in root for case in suite}


def test_a_check_has_a_case_for_each_unique_module() -> None:
    results = check_for_ci(check_result(finding()), failed=True)

    assert kinds(results) == {"(the model)": "failure", "layers": "skipped", "layers.0": "error"} | {
        name: kind for name, kind in kinds(results).items() if name not in ("(the model)", "layers", "layers.0")
    }
    assert "SIGSEGV" in junit_xml(results)
    assert "failed" in results.heading


def test_proven_findings_come_first_in_the_summary_and_the_annotations() -> None:
    guess = finding("aten.add.Tensor", id="finding_000", proven=False, blame=Blame.OP)

    results = check_for_ci(check_result(guess, finding()), failed=True)

    rows = [line for line in github_summary(results).splitlines() if line.startswith("| finding_")]
    assert ["aten.mm.default" in rows[0], "| yes |" in rows[0], "| no |" in rows[1]] == [True, True, True]
    first = next(github_annotations(results))
    assert first.startswith("::error title=aten.mm.default on ")
    assert "layers.0" in first


def test_a_comparison_has_a_case_for_each_tensor_and_for_the_setup() -> None:
    found = comparison(
        verdict("modules/up", Status.PASSED, errors()), verdict("outputs", Status.WRONG_VALUES, errors()),
        verdict("modules/down", Status.NOT_GIVEN), passed=False, incomplete="1 of 2 module outputs is missing",
        setup=(SetupCheck(aspect="weights", same=False, detail="2 weights differ", decisive=True),
               SetupCheck(aspect="seed", same=None, detail="not stated")),
    )  # fmt: skip

    assert kinds(comparison_for_ci(found, failed=True)) == {
        "modules/up": "passed", "outputs": "failure", "modules/down": "skipped", "weights": "failure",
        "seed": "skipped", "complete": "failure",
    }  # fmt: skip
    fine = msgspec.structs.replace(found, verdicts=found.verdicts[:1], passed=True, setup=(), incomplete="")
    assert kinds(comparison_for_ci(fine, failed=False)) == {"modules/up": "passed"}


def test_a_memory_budget_has_a_case_for_each_limit() -> None:
    results = budget_for_ci("run.log", [("allocations", ()), ("DRAM peak", ("DRAM peak is 2 GiB", "twice"))])

    assert kinds(results) == {"allocations": "passed", "DRAM peak": "failure"}
    assert "DRAM peak is 2 GiB; twice" in github_summary(results)
    assert list(github_annotations(results)) == ["::error title=DRAM peak::DRAM peak is 2 GiB; twice"]


def test_no_file_is_green_for_a_job_that_is_red() -> None:
    """Nothing could be judged, or --strict: no case failed, and the exit code is 1."""
    busy = check_result(modules=(module("", "skipped", outcome="machine too busy", reason="not given its CPU time"),))
    assert not busy.passed

    for results in (
        check_for_ci(busy, failed=True),
        comparison_for_ci(comparison(verdict("outputs", Status.SUSPICIOUS, errors()), passed=True), failed=True),
        sweep_for_ci(replace(run("1", result("k1-good")), finished=False), failed=True),
    ):
        assert kinds(results)["exit code"] == "failure"
        assert "failed" in github_summary(results).splitlines()[0]
    assert "exit code" not in kinds(sweep_for_ci(run("1", result("k1-good")), failed=False))
    assert "1 could not be judged" in junit_xml(check_for_ci(busy, failed=True))
