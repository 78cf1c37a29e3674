"""Ids of findings, their pages, and known error texts."""

import re
from pathlib import Path

import pytest

from tests.architecture.repository import ROOT, load_tool
from torchstone.check.known_findings import code_of, code_of_drift, explanation, finding_kinds, looks_like, patterns
from torchstone.errors import InputError
from torchstone.record.check import FAILURES, Blame, DriftKind, Numbers, Outcome, Proof, UnitResult


def test_every_failure_has_an_id_that_is_explained() -> None:
    codes = {code_of(blame, UnitResult(outcome=outcome)) for blame in Blame for outcome in FAILURES}
    codes |= {code_of_drift(kind) for kind in DriftKind if kind is not DriftKind.NONE}
    codes.add(code_of(Blame.OP, UnitResult(outcome=Outcome.WRONG, numbers=Numbers(misplaced=3))))

    assert codes == set(finding_kinds())
    assert all(re.fullmatch(r"TS-CHK-\d{3}", code) for code in codes)


def test_the_pages_are_those_of_today() -> None:
    folder = ROOT / "docs" / "findings"

    wanted = load_tool("finding_pages").pages()

    assert {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*.md")} == wanted, "run `make docs`"


def test_an_unknown_id_is_refused() -> None:
    assert explanation("ts-chk-001").startswith("# TS-CHK-001: ")
    with pytest.raises(InputError, match="there is no finding 'TS-CHK-999'; known are TS-CHK-001"):
        explanation("TS-CHK-999")


def test_a_known_text_says_what_it_looks_like() -> None:
    crashed = UnitResult(outcome=Outcome.CRASHED, proof=Proof(last_output="terminate: std::bad_alloc"))
    legalize = UnitResult(outcome=Outcome.COMPILE_ERROR, reason="failed to legalize operation 'ttir.sort'")

    assert looks_like(crashed, "any").startswith("host memory that ran out")
    assert looks_like(legalize, "tt").startswith("an op that a lowering")
    assert looks_like(UnitResult(outcome=Outcome.RAISED, reason="no such thing"), "any") == ""


def test_a_pattern_of_one_backend_is_not_used_for_others() -> None:
    result = UnitResult(outcome=Outcome.UNSUPPORTED, reason="No ONNX function found for aten.x")

    assert looks_like(result, "onnxruntime")
    assert not looks_like(result, "inductor")


def test_every_pattern_is_a_regular_expression_with_a_way_out() -> None:
    for one in patterns():
        re.compile(one.text)
        assert one.looks_like
        assert one.try_


def test_the_flow_chart_names_commands_and_ids_that_exist() -> None:
    page = (Path(ROOT) / "docs/how-to/my-numbers-are-wrong.md").read_text(encoding="utf-8")

    assert set(re.findall(r"TS-CHK-\d{3}", page)) <= set(finding_kinds())
