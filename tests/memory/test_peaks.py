from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.memory.log_generator.style import Style
from tests.memory.timelines import study_of
from torchstone.memory.read_log import parse_log
from torchstone.memory.study import Study
from torchstone.memory.usage import find_peaks


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 10**6), level=st.sampled_from(["operation", "any"]))
def test_peaks_are_the_highest_snapshots(seed: int, level: str) -> None:
    study, truth = study_of(seed, style=Style(level=level))

    for peak in find_peaks(study):
        assert peak.state.allocated == truth.peak(peak.memory)
        if peak.op >= 0:
            first = next(op for op, row in enumerate(truth.rows) if row.memory[peak.memory][0] == peak.state.allocated)
            assert peak.op == first


def test_a_peak_after_submit_belongs_to_no_op() -> None:
    study, truth = study_of(1, passes=1, style=Style(level="program"))

    assert all(peak.op == -1 for peak in find_peaks(study))
    assert truth.snapshots == []


def test_the_samples_peaks_stand_in_blocks_of_deallocates(sample_log: Path) -> None:
    study = Study(parse_log(sample_log))

    found = {peak.memory: (peak.state.allocated, peak.op) for peak in find_peaks(study)}

    assert found["DRAM"] == (12939, 66)
    assert found["L1"] == (250, 45)
    assert study.name_of(66) == "ttnn.deallocate(%2)"
    assert study.name_of(65) == "%3 = ttnn.multiply(%2, %0)"
    assert study.name_of(44) == "%11 = ttnn.gelu(%10)"
    before_main, second_pass = study.readings["DRAM"].allocated[0], study.timeline.programs
    assert before_main == 342
    start = [run.first_op for run in second_pass if run.pass_index == 2 and run.parent < 0]
    assert study.readings["DRAM"].allocated[start[0]] == 2350
    views = [op for op in range(38) if study.name_of(op).partition("= ")[2].startswith("ttnn.reshape")]
    assert views
