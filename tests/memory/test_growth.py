"""Growth from pass to pass: only where it goes on, with its causes, and with the step at which memory ends."""

import pytest

from tests.memory.log_generator.device import wormhole
from tests.memory.log_generator.run import Host
from tests.memory.log_generator.serving import serving_log
from torchstone.memory.growth import CONST_EVALS, KEPT_OUTPUTS, find_growth, pass_steps
from torchstone.memory.read_log import parse_log
from torchstone.memory.study import Study
from torchstone.report.memory_text import passes_text

MIXED = (0, 2, 2, 1, 2, 2, 0, 2, 2, 1, 2, 2, 0, 2, 1, 2, 2, 2, 2)


def study_of(log: bytes) -> Study:
    return Study(parse_log(log.splitlines(keepends=True)))


@pytest.mark.parametrize("seed", [0, 3])
@pytest.mark.parametrize(
    "host", [Host(), Host(replaces_outputs=True), Host(keeps_inputs=True), Host(churn_bytes=98_304)]
)
def test_what_comes_and_goes_or_grows_once_is_no_growth(seed: int, host: Host) -> None:
    log, _ = serving_log(seed, order=MIXED, host=host)

    assert find_growth(study_of(log)) == ()


def test_kept_outputs_are_the_cause() -> None:
    log, _ = serving_log(0, order=MIXED, host=Host(keeps_outputs=True))

    (growth,) = find_growth(study_of(log))

    assert {part.kind for part in growth.parts} == {KEPT_OUTPUTS}
    assert abs(sum(part.bytes_per_pass for part in growth.parts) - growth.bytes_per_pass) < 200
    assert "out of memory at about step" in passes_text(study_of(log))[0]


def test_the_step_at_which_memory_ends_is_where_the_device_fails() -> None:
    host = Host(keeps_outputs=True)
    _, whole = serving_log(2, order=(2,) * 60, host=host)
    size = max(sum(size for _, size in row.live["DRAM"]) for row in whole.rows)
    start, _ = serving_log(2, order=(2,) * 20, host=host, memories=wormhole(dram_bytes=size))
    _, failed = serving_log(2, order=(2,) * 200, host=host, memories=wormhole(dram_bytes=size))

    (growth,) = [one for one in find_growth(study_of(start)) if one.memory == "DRAM"]

    assert failed.out_of_memory is not None
    assert growth.passes_left is not None
    assert abs(20 + growth.passes_left - failed.passes) <= 3


def test_each_change_between_passes_is_the_sum_of_its_parts() -> None:
    log, _ = serving_log(1, order=(0, 2, 1, 2, 2), host=Host(keeps_outputs=True))

    steps = pass_steps(study_of(log), "DRAM", limit=100)

    assert any(part.kind == CONST_EVALS for part in steps[0].parts)
    for step in steps:
        assert abs(sum(part.bytes_per_pass for part in step.parts) - step.change_bytes) < 3000
