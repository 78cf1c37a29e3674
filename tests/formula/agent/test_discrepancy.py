from msgspec.structs import replace

from tests.formula.agent.subjects import measured
from tests.formula.entries import entry, formulas, memory
from torchstone.formula.agent.ask import discrepancy
from torchstone.record.formula import FormulaEntry, MeasuredCost

POINTS = [measured(5), measured(8)]


def net(flops: str = "3 * ${n}", reads: str = "2 * ${n}", domain: tuple[str, ...] = ()) -> FormulaEntry:
    one = entry("pkg.Net", flops, "n", domain=domain)
    return replace(one, memory_analysis=memory("n", reads=reads, writes="4 * ${n}"))


def test_an_entry_that_is_right_everywhere_has_no_discrepancy() -> None:
    assert discrepancy(formulas(), net(), POINTS) is None


def test_the_first_difference_is_named_with_its_point() -> None:
    assert discrepancy(formulas(), net(reads="16"), POINTS) == (
        "at n=5 the formula gives 16 reads, but 10 were measured (off by 6)"
    )


def test_an_entry_whose_domain_excludes_a_measured_point_is_wrong() -> None:
    assert discrepancy(formulas(), net(domain=("n > 5",)), POINTS) == "pkg.Net holds only where n > 5, not at n=5"


def test_an_entry_without_bytes_is_wrong() -> None:
    assert discrepancy(formulas(), entry("pkg.Net", "3 * ${n}", "n"), POINTS) == "pkg.Net has no formula for reads"


def test_an_entry_of_before_does_not_count() -> None:
    assert discrepancy(formulas(net("7")), net(), POINTS) is None


def test_weights_and_live_bytes_are_judged_where_they_were_measured() -> None:
    points = [
        MeasuredCost(parameters={"n": n}, flops=3 * n, reads_bytes=n, writes_bytes=n, live_bytes=2 * n, weight_bytes=8)
        for n in (4, 7)
    ]
    one = entry("pkg.Net", "3 * ${n}", "n")
    whole = memory("n", reads="${n}", writes="${n}", weights="8", live="2 * ${n}")
    assert discrepancy(formulas(), replace(one, memory_analysis=whole), points) is None

    without = replace(one, memory_analysis=memory("n", reads="${n}", writes="${n}", live="2 * ${n}"))
    assert discrepancy(formulas(), without, points) is None  # not known, but not wrong

    wrong = replace(one, memory_analysis=memory("n", reads="${n}", writes="${n}", weights="8", live="3 * ${n}"))
    assert "12 intermediates, but 8 were measured" in str(discrepancy(formulas(), wrong, points))
