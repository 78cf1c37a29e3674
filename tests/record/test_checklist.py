import pytest

from torchstone.record.reference import Box, Check


@pytest.mark.parametrize(("results", "ticked"), [((True, True), True), ((True, False), False), ((), False)])
def test_a_box_is_ticked_only_by_checks_that_ran_and_passed(results: tuple[bool, ...], *, ticked: bool) -> None:
    checks = tuple(Check(title="equal", passed=passed) for passed in results)

    assert Box(name="graph", title="Graph", files=(), checks=checks).ticked is ticked
