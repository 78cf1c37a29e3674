import gc
from weakref import ref

from tests.memory.log_generator.style import Style
from tests.memory.timelines import study_of
from torchstone.memory.allocator import allocator_replay
from torchstone.memory.ledger import ledger_of, live_before


def test_an_op_without_text_is_called_by_its_type() -> None:
    study, truth = study_of(3, style=Style(info_only=True))

    assert study.call(0) is None
    assert study.name_of(0) == truth.rows[0].op_type


def test_nested_ops_belong_to_the_pass_that_caused_them() -> None:
    study, truth = study_of(3)
    nested = next(op for op, row in enumerate(truth.rows) if row.const_eval)

    assert study.run(nested).name == truth.rows[nested].program
    assert study.timeline.programs[study.outermost_run(nested)].name == "main"


def test_banks_come_from_the_log() -> None:
    study, _ = study_of(3)

    assert study.banks == {"DRAM": 12, "L1": 64, "L1_SMALL": 64, "TRACE": 12}


def test_a_study_that_was_analyzed_is_let_go_of() -> None:
    study, _ = study_of(3)
    live_before(study, 0)
    allocator_replay(study, "DRAM")
    assert ledger_of(study) is ledger_of(study)
    assert allocator_replay(study, "DRAM") is allocator_replay(study, "DRAM")

    gone = ref(study)
    del study
    gc.collect()

    assert gone() is None
