from tests.check.results import check_result, finding
from torchstone.check.summary import compare
from torchstone.report.check_text import comparison_text
from torchstone.report.text import plain

FOUND = compare([check_result(), check_result(finding(), backend="other")], ["a", "b"])


def test_each_backend_has_a_column() -> None:
    lines = comparison_text(FOUND, plain, only_differences=False).splitlines()

    assert lines[0].split("  ")[-1].strip() == "other (torch 2)"
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
