from tests.check.results import check_result, finding
from torchstone.record.check import Blame
from torchstone.report.check_text import check_text
from torchstone.report.text import plain


def test_what_to_fix_comes_with_its_script() -> None:
    text = check_text(check_result(finding()), plain, with_repros=True)

    assert "Fix this op and 100 % of the model runs (60 % does today, by FLOPs): aten.mm.default." in text
    assert "repros/001_aten_mm_default.py" in text
    assert "ended by SIGSEGV" not in text
    assert "layers.0" in text


def test_without_a_folder_no_script_is_promised() -> None:
    assert "repros/" not in check_text(check_result(finding()), plain, with_repros=False)


def test_a_model_that_works_takes_three_lines() -> None:
    assert check_text(check_result(), plain, with_repros=True).splitlines() == [
        "toy on faulty (torch 2)",
        "",
        "All of it works: 100 op calls in 2 unique modules.",
        "",
        "unique modules: 1 inherited_success, 1 success; 7 runs on the backend, 0.00 µs in total",
    ]


def test_a_module_without_an_op_to_blame_is_named() -> None:
    text = check_text(check_result(finding(ops=(), blame=Blame.MODULE)), plain, with_repros=True)

    assert "the code of layers.0" in text


def test_long_lists_are_cut_and_told() -> None:
    text = check_text(check_result(*(finding() for _ in range(40))), plain, with_repros=False)

    assert "and 10 more, in check.json" in text
