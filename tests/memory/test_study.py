from tests.memory.log_generator.style import Style
from tests.memory.timelines import study_of


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
