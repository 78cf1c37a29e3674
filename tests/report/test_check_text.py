import msgspec

from tests.check.results import check_result, finding
from torchstone.check.summary import compare, summary_text
from torchstone.numerics.profiles import rule_in_words
from torchstone.record.check import Blame, Numbers, Outcome
from torchstone.report.check_text import check_text, comparison_text
from torchstone.report.text import plain


def test_what_to_fix_comes_with_its_script() -> None:
    text = check_text(check_result(finding()), plain, with_repros=True)

    assert "Fix this op and 100 % of the model runs (60 % does today, by FLOPs): aten.mm.default." in text
    assert "repros/001_aten_mm_default.py" in text
    assert "ended by SIGSEGV" not in text
    assert "layers.0" in text


def test_without_a_folder_no_script_is_promised() -> None:
    assert "repros/" not in check_text(check_result(finding()), plain, with_repros=False)


def test_a_model_that_works_takes_few_lines_and_names_the_rule() -> None:
    assert check_text(check_result(), plain, with_repros=True).splitlines() == [
        "toy on faulty (torch 2)",
        "",
        "All of it works: 100 op calls in 2 unique modules.",
        "",
        "unique modules: 1 inherited_success, 1 success; 7 runs on the backend, 0.00 µs in total; all run now",
        rule_in_words("default"),
    ]
    assert "docs/how-it-works/verdicts.md" in rule_in_words("default")


def test_suspicious_modules_are_counted_and_shown_with_their_multiple() -> None:
    numbers = Numbers(
        state="suspicious", noise_multiple=2.44, noise_format="float32", noise_basis="measured", noise_measure="RMS",
        relative_error=1.7e-6, pcc=0.9999,
    )  # fmt: skip
    whole = check_result()
    first = msgspec.structs.replace(whole.modules[0], outcome=Outcome.PASSED, numbers=numbers)
    found = msgspec.structs.replace(whole, modules=(first, *whole.modules[1:]))

    text = check_text(found, plain, with_repros=False)

    assert found.passed
    assert "1 module is suspicious" in text
    assert "relative error 1.7e-06, 2.44 times what float32 explains" in text
    assert "## Suspicious modules" in summary_text(found)


def test_a_module_without_an_op_to_blame_is_named() -> None:
    text = check_text(check_result(finding(ops=(), blame=Blame.MODULE)), plain, with_repros=True)

    assert "the code of layers.0" in text


def test_long_lists_are_cut_and_told() -> None:
    text = check_text(check_result(*(finding() for _ in range(40))), plain, with_repros=False)

    assert "and 10 more, in check.json" in text


FOUND = compare([check_result(), check_result(finding(), backend="other")], ["a", "b"])


def test_each_backend_has_a_column() -> None:
    lines = comparison_text(FOUND, plain, only_differences=False).splitlines()

    assert lines[0].split("  ")[-1].strip() == "b: other (torch 2)"
    assert lines[1].startswith("(the model)")
    assert "✓ success" in lines[1]
    assert "✗ failed" in lines[1]
    assert "absent" in lines[3]


def test_what_each_backend_must_fix_is_told() -> None:
    text = comparison_text(FOUND, plain, only_differences=False)

    assert "other (torch 2): 90 of 100 op calls pass; aten.mm.default" in text
    assert "faulty (torch 2): 100 of 100 op calls pass; no failures" in text


def test_equal_checks_have_no_difference() -> None:
    same = compare([check_result(), check_result()], ["a", "b"])

    assert comparison_text(same, plain, only_differences=True).startswith("no module differs")
