import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.memory.log_generator.style import Style
from tests.memory.timelines import study_of
from torchstone.errors import InputError
from torchstone.memory.study import UNKNOWN, main_memory, spans_host, tick_bytes
from torchstone.record.memory import MemoryTimeline


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 10**6), level=st.sampled_from(["operation", "any"]), info_only=st.booleans())
def test_an_effect_is_the_next_snapshot_minus_its_own(*, seed: int, level: str, info_only: bool) -> None:
    study, truth = study_of(seed, style=Style(level=level, info_only=info_only))

    for name, readings in study.readings.items():
        expected = [row.effect.get(name, UNKNOWN) for row in truth.rows]
        assert readings.effects.tolist() == expected
        assert readings.free.tolist() == [row.memory[name][1] for row in truth.rows]
        assert readings.largest_free.tolist() == [row.memory[name][2] for row in truth.rows]


def test_the_last_op_of_a_log_without_a_later_snapshot_has_no_known_effect() -> None:
    study, _ = study_of(1)

    assert study.readings["DRAM"].effects[-1] == UNKNOWN


def test_with_a_snapshot_after_submit_no_effect_holds_the_hosts_work() -> None:
    with_submits, _ = study_of(1, style=Style(level="any"))
    without, truth = study_of(1)

    assert not any(spans_host(with_submits.timeline))
    assert sum(spans_host(without.timeline)) == truth.passes


def test_a_log_without_readings_has_no_main_memory() -> None:
    with pytest.raises(InputError, match="TT_RUNTIME_MEMORY_LOG_LEVEL"):
        main_memory(MemoryTimeline(dialect="x", source="run.log"))


def test_ticks_are_thousandths_of_a_mib() -> None:
    assert tick_bytes(MemoryTimeline(dialect="x"), 1000) == 1 << 20
