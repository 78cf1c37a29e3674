import json
from xml.etree import ElementTree

from msgspec.structs import replace

from tests.sweep.builders import result, run
from torchstone.record.check import Outcome
from torchstone.report.ci import github_annotations, github_summary, junit_xml
from torchstone.report.sweep_ci import sarif_json, sweep_for_ci

CRASHED = replace(result("k1-crash", Outcome.CRASHED), detail="SIGSEGV", last_output="bad \x00 <bytes> \x1b[31m")
WRONG = replace(result("k1-wrong", Outcome.WRONG), detail="line one\nline two: 50% | off")
KNOWN = replace(result("k1-known", Outcome.WRONG), quarantined="ticket 5")
RUN = run("1", result("k1-good"), CRASHED, WRONG, KNOWN, replace(result("k1-skip", Outcome.NOT_RUN), detail="random"))


def test_junit_has_a_case_for_each_vector_and_is_xml_whatever_the_text() -> None:
    root = ElementTree.fromstring(junit_xml(sweep_for_ci(RUN, failed=True)))  # noqa: S314 - our own text

    (suite,) = root
    cases = {case.attrib["name"]: [child.tag for child in case] for case in suite}
    assert {name: suite.attrib[name] for name in ("tests", "failures", "errors", "skipped")} == {
        "tests": "5", "failures": "1", "errors": "1", "skipped": "2",
    }  # fmt: skip
    assert [tags for name, tags in cases.items() if "k1-crash" in name] == [["error"]]
    assert [tags for name, tags in cases.items() if "k1-known" in name] == [["skipped"]]
    assert [tags for name, tags in cases.items() if "k1-good" in name] == [[]]


def test_the_summary_shows_failures_and_counts_known_ones() -> None:
    text = github_summary(sweep_for_ci(RUN, failed=True))

    assert text.startswith("### Sweep on ")
    assert "1 failures are quarantined." in text
    assert "| wrong | 0 | line one line two: 50% \\| off |" in text or "line one line two: 50% \\| off |" in text


def test_no_text_of_a_result_becomes_a_command_of_its_own() -> None:
    evil = replace(WRONG, detail="x\n::set-output name=a::b")

    lines = list(github_annotations(sweep_for_ci(run("1", evil), failed=True)))

    assert len(lines) == 1
    assert lines[0].startswith("::error title=")
    assert "%0A::set-output" in lines[0]
    assert not list(github_annotations(sweep_for_ci(run("1", KNOWN), failed=False)))


def test_sarif_has_a_result_for_each_failure_and_dismisses_known_ones() -> None:
    (found,) = json.loads(sarif_json(RUN))["runs"]

    by_vector = {one["locations"][0]["logicalLocations"][0]["name"]: one for one in found["results"]}
    assert set(by_vector) == {"k1-crash", "k1-wrong", "k1-known"}
    assert [one for one, result in by_vector.items() if "suppressions" in result] == ["k1-known"]
    assert by_vector["k1-crash"]["message"]["text"].startswith("crashed on ")
    assert {one["ruleId"] for one in found["results"]} == {rule["id"] for rule in found["tool"]["driver"]["rules"]}
