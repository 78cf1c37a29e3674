import msgspec
import pytest

from torchstone.record.config import ModelCoverage, OpCoverage
from torchstone.report.ops_text import coverage_text

MM = OpCoverage(op="mm", configurations=3, passed=1, failed=1, calls=10, passed_calls=4, failed_calls=5)
ADD = OpCoverage(op="add", configurations=1, passed=1, failed=0, calls=2, passed_calls=2, failed_calls=0)
COVERAGE = ModelCoverage(models=("net",), backend="eager", ops=(MM, ADD), uncounted=0)


def test_the_share_comes_first_then_the_ops() -> None:
    assert coverage_text(COVERAGE, top=5).splitlines() == [
        "net on eager: 50.0 % covered, 6 of 12 calls are of configurations that pass",
        "2 of 4 configurations pass; 5 calls fail, 1 were not tested",
        "",
        "op   calls  pass  fail  not tested  covered",
        "mm      10     4     5           1   40.0 %",
        "add      2     2     0           0    100 %",
    ]


def test_only_so_many_ops_are_shown() -> None:
    assert "add" not in coverage_text(COVERAGE, top=1)


def test_calls_that_nobody_counted_are_named() -> None:
    text = coverage_text(ModelCoverage(models=("net",), backend="eager", ops=(), uncounted=7), top=1)

    assert "no calls were counted" in text
    assert "7 places without a count of calls" in text


@pytest.mark.parametrize(("passed", "share"), [(0, "0 %"), (1, "0.1 %"), (99_999, "99.9 %"), (100_000, "100 %")])
def test_a_share_is_whole_only_where_nothing_is_missing(passed: int, share: str) -> None:
    op = msgspec.structs.replace(MM, calls=100_000, passed_calls=passed, failed_calls=0)

    assert f" {share} covered" in coverage_text(msgspec.structs.replace(COVERAGE, ops=(op,)), top=1)
