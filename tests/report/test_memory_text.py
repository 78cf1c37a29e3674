from tests.memory.log_generator.demo import failing_log, healthy_log
from tests.memory.log_generator.style import Style
from tests.memory.timelines import study_of
from torchstone.memory.compare import compare
from torchstone.memory.read_log import parse_log
from torchstone.memory.study import Study
from torchstone.report.memory_text import comparison_text, memory_text, op_text
from torchstone.report.text import coloured, plain


def test_a_failure_is_told_before_anything_else() -> None:
    lines = memory_text(Study(parse_log(failing_log().splitlines())), top=3).splitlines()

    assert lines[2].startswith("OUT OF MEMORY (capacity) at op 110")
    assert "needed 3.91 MiB, free 2.78 MiB, largest block 2.53 MiB" in lines[3]
    assert "last dim 2 padded to 32: 16x" in lines[4]
    assert any(line.startswith("live in DRAM before the failing op") for line in lines)


def test_each_peak_names_the_op_that_made_it() -> None:
    text = memory_text(Study(parse_log(healthy_log().splitlines())))

    assert "10.125 MiB" in text
    assert "after %32 = ttnn.multiply(%31, %31)" in text
    assert "const_eval: const-eval of blocks.0.mlp.fc1.weight" in text
    assert "the true peak is higher" in text


def test_what_is_missing_stands_at_the_end() -> None:
    study, _ = study_of(3, style=Style(info_only=True))

    assert memory_text(study).splitlines()[-1].startswith("note: The log has readings but no op lines")


def test_colour_is_used_on_demand_only() -> None:
    study, _ = study_of(3)

    assert "\x1b[" in memory_text(study, paint=coloured)
    assert "\x1b[" not in memory_text(study)


def test_one_op_shows_its_effect() -> None:
    study, truth = study_of(3)

    assert f"DRAM {truth.rows[5].effect['DRAM'] / 1000:+.3f} MiB" in op_text(study, 5, top=3, paint=plain)


def test_a_comparison_names_the_first_difference() -> None:
    first, second = study_of(3)[0], study_of(8)[0]

    text = comparison_text(first, second, compare(first, second), top=5)

    assert "first difference at" in text
    assert "only in the first" in text
