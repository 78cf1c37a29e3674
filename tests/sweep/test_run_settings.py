from tests.sweep.builders import run
from torchstone.record.vector import SweepSettings
from torchstone.sweep.run import extra_of

SETTINGS = SweepSettings(rtol=0.1)


def test_only_what_was_asked_for_is_in_the_tolerance() -> None:
    extra = extra_of(run("1", backend="inductor", options={"mode": "x"}), SETTINGS)

    assert extra["tolerance"] == {"rtol": 0.1}
    assert (extra["backend"], extra["options"], extra["perf"]) == ("inductor", {"mode": "x"}, None)


def test_times_are_measured_where_asked_for() -> None:
    assert extra_of(run("1"), SweepSettings(perf=True, perf_runs=7))["perf"] == {"runs": 7}
