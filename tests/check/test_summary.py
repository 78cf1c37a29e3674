from pathlib import Path

import msgspec
import pytest

from tests.check.results import check_result, finding, module
from torchstone.check.summary import finding_text, share, summary_text, twin_in_words, verdict_sentence
from torchstone.record.check import Blame, Rung, Totals, Twin
from torchstone.record.codec import save


def test_a_model_that_works_is_said_to() -> None:
    assert verdict_sentence(check_result()) == "All of it works: 100 op calls in 2 unique modules."


def test_what_to_fix_is_named_with_what_that_brings() -> None:
    result = check_result(finding(), finding("aten.relu.default", flops=20), fixed=True)

    assert verdict_sentence(result) == (
        "Fix these 2 ops and 100 % of the model runs (58 % does today, by FLOPs): aten.mm.default, aten.relu.default."
    )


def test_what_is_not_proven_is_not_in_the_sentence() -> None:
    result = check_result(finding(), finding("aten.relu.default", proven=False), fixed=True)

    assert verdict_sentence(result).endswith(": aten.mm.default. 1 more finding is not proven.")


def test_a_model_that_fails_without_what_was_found_is_said_to() -> None:
    result = check_result(finding(), fixed=False)

    assert "the model still fails: something else is wrong, too." in verdict_sentence(result)


def test_an_op_that_fails_in_two_configurations_is_one_op() -> None:
    result = check_result(finding(configurations=("a", "b")), fixed=True)

    assert verdict_sentence(result).startswith("Fix this op in 2 configurations and 100 % of the model runs")


def test_modules_without_an_op_to_blame_are_told_beside_the_ops() -> None:
    result = check_result(finding(), finding(ops=(), blame=Blame.MODULE, proven=False))

    assert verdict_sentence(result).endswith("something else is wrong, too. 1 more finding is not proven.")


def test_the_share_is_by_op_calls_where_no_price_is_known() -> None:
    totals = Totals(op_calls=100, working_calls=90, unknown_calls=0)
    result = check_result(finding(flops=None), totals=totals)

    assert share(result, ()) == 0.9
    assert "by op calls" in verdict_sentence(result)


def test_all_is_only_said_when_it_is_all() -> None:
    totals = Totals(op_calls=100_000, working_calls=1, unknown_calls=1)
    result = check_result(finding(op_calls=99_998, flops=None), totals=totals)

    assert "99.9 % of the model" in verdict_sentence(result)


def test_modules_without_an_op_to_blame_are_said_to_be_so() -> None:
    result = check_result(finding(ops=(), blame=Blame.MODULE, proven=False))

    assert verdict_sentence(result) == "1 module fails, but no cause was proven."


def test_what_could_not_be_judged_is_no_success() -> None:
    unjudged = module("", "skipped", outcome="not run", reason="eager itself raises")
    result = check_result(modules=(unjudged, module("layers", "success", outcome="passed")))

    assert not result.passed
    assert verdict_sentence(result) == "1 module could not be judged; the model itself: eager itself raises."


def test_nothing_judged_is_no_success() -> None:
    assert verdict_sentence(check_result(modules=(module("", "skipped"),))) == "Nothing was judged."


@pytest.mark.parametrize(
    "words",
    [
        "# toy on faulty",
        "| 1 | aten.mm.default | yes | wrong | PCC 0.1 is below 0.99 | 10 | 400 | layers.0 |",
        "[repros/001_aten_mm_default.py](repros/001_aten_mm_default.py)",
        "| layers.0 | Layer | 1 | failed | crashed | ended by SIGSEGV |",
        "2 failed, 1 skipped",
    ],
)
def test_the_page_has_everything_to_go_on_with(words: str) -> None:
    assert words in summary_text(check_result(finding()))


def test_a_script_that_did_not_fail_again_is_marked() -> None:
    assert "(not confirmed)" in summary_text(check_result(finding(confirmed=False)))


def test_names_cannot_break_the_page() -> None:
    text = summary_text(check_result(finding(reason="a | b\nc <script>"), model="<b>`x`"))

    assert "<script>" not in text
    assert "a \\| b c" in text
    assert text.startswith("# &lt;b>'x' on faulty\n")


def test_what_is_not_known_is_told() -> None:
    totals = Totals(op_calls=100, working_calls=60, unknown_calls=30)

    assert "30 op calls are in modules that fail without a known failing op" in summary_text(
        check_result(finding(), totals=totals)
    )


def test_a_finding_is_explained_with_its_forms_and_its_twin(tmp_path: Path) -> None:
    one = msgspec.structs.replace(
        finding(),
        ladder=(
            Rung(form="torch", file="repros/001_x.py", outcome="wrong"),
            Rung(form="exported program", outcome="passed", reason="it passes in this form"),
            Rung(form="ONNX", reason="there is no such text: numpy has no bfloat16"),
        ),
        twin=Twin(change="with contiguous tensors", file="repros/001_x/passes.py", fails_with=("with random values",)),
        code="TS-CHK-001",
    )
    save(tmp_path / "check.json", check_result(one))

    text = finding_text(tmp_path, "finding_001")

    assert "passes as exported program, no ONNX: there is no such text: numpy has no bfloat16" in text
    assert "passes with contiguous tensors (repros/001_x/passes.py)" in text
    assert "It still fails with random values." in text
    assert "# TS-CHK-001: " in text
    assert "passes with contiguous tensors (repros/001_x/passes.py)" in summary_text(check_result(one))


def test_changes_that_do_not_help_are_counted() -> None:
    one = msgspec.structs.replace(finding(), twin=Twin(fails_with=("with random values", "with contiguous tensors")))

    assert twin_in_words(one).startswith("none of 2 changes that were tried makes it pass: with random values")
