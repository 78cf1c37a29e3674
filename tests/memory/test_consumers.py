from pathlib import Path

from tests.memory.timelines import study_of
from torchstone.memory.read_log import parse_log
from torchstone.memory.study import Study
from torchstone.memory.usage import expected_bank_bytes, top_consumers


def test_the_largest_effect_comes_first_and_belongs_to_the_op_that_made_it() -> None:
    study, truth = study_of(3)

    found = top_consumers(study, "DRAM", limit=3)

    effects = [row.effect.get("DRAM", 0) for row in truth.rows]
    assert found[0].effect_ticks == max(effects)
    assert effects[found[0].op] == found[0].effect_ticks


def test_the_sample_blames_the_reshape_not_the_op_after_it(sample_log: Path) -> None:
    study = Study(parse_log(sample_log))

    blamed = {study.name_of(one.op): one.effect_ticks for one in top_consumers(study, "DRAM", limit=2)}

    assert blamed == {"%2 = ttnn.reshape(%1)": 5210, "%3 = ttnn.multiply(%2, %0)": 5210}


def test_what_an_op_should_take_comes_from_its_result_types() -> None:
    study, _ = study_of(3)

    assert expected_bank_bytes(study, None, "DRAM") is None
    known = [expected_bank_bytes(study, study.call(op), "DRAM") for op in range(len(study.calls))]
    assert any(size for size in known)
