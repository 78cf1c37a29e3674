from xml.etree import ElementTree

import msgspec

from tests.check.results import check_result, finding
from tests.report.test_comparison_text import comparison, errors, verdict
from torchstone.record.check import Blame
from torchstone.record.reference import SetupCheck, Status
from torchstone.report.checks_ci import budget_for_ci, check_for_ci, comparison_for_ci
from torchstone.report.ci import CiResults, github_annotations, github_summary, junit_xml


def kinds(results: CiResults) -> dict[str, str]:
    root = ElementTree.fromstring(junit_xml(results))  # noqa: S314 - our own text
    return {case.attrib["name"]: next((one.tag for one in case), "passed") for suite in root for case in suite}


def test_a_check_has_a_case_for_each_unique_module() -> None:
    results = check_for_ci(check_result(finding()))

    assert kinds(results) == {"(the model)": "failure", "layers": "skipped", "layers.0": "error"} | {
        name: kind for name, kind in kinds(results).items() if name not in ("(the model)", "layers", "layers.0")
    }
    assert "SIGSEGV" in junit_xml(results)
    assert "failed" in results.heading


def test_proven_findings_come_first_in_the_summary_and_the_annotations() -> None:
    guess = finding("aten.add.Tensor", id="finding_000", proven=False, blame=Blame.OP)

    results = check_for_ci(check_result(guess, finding()))

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

    assert kinds(comparison_for_ci(found)) == {
        "modules/up": "passed", "outputs": "failure", "modules/down": "skipped", "weights": "failure",
        "seed": "skipped", "complete": "failure",
    }  # fmt: skip
    fine = msgspec.structs.replace(found, verdicts=found.verdicts[:1], passed=True, setup=(), incomplete="")
    assert kinds(comparison_for_ci(fine)) == {"modules/up": "passed"}


def test_a_memory_budget_has_a_case_for_each_limit() -> None:
    results = budget_for_ci("run.log", [("allocations", ()), ("DRAM peak", ("DRAM peak is 2 GiB", "twice"))])

    assert kinds(results) == {"allocations": "passed", "DRAM peak": "failure"}
    assert "DRAM peak is 2 GiB; twice" in github_summary(results)
    assert list(github_annotations(results)) == ["::error title=DRAM peak::DRAM peak is 2 GiB; twice"]
