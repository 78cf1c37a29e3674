import pytest

from tests.memory.log_generator.graphs import random_graph
from tests.memory.log_generator.run import generate
from tests.memory.log_generator.style import Style
from tests.memory.timelines import study_of
from torchstone.memory.out_of_memory import diagnose, has_memory
from torchstone.memory.read_log import parse_log


def test_a_whole_log_needs_no_words() -> None:
    timeline = study_of(1)[0].timeline

    assert diagnose(timeline) == ()
    assert has_memory(timeline)


@pytest.mark.parametrize(
    ("style", "switch"),
    [
        (Style(info_only=True), "TTMLIR_RUNTIME_LOGGER_LEVEL=DEBUG"),
        (Style(level="program"), "TT_RUNTIME_MEMORY_LOG_LEVEL=any"),
        (Style(dumps=False), "TTXLA_LOGGER_LEVEL=DEBUG"),
        (Style(ranks=2), "--rank"),
    ],
)
def test_what_is_missing_is_named_with_its_switch(style: Style, switch: str) -> None:
    assert switch in " ".join(diagnose(study_of(1, style=style)[0].timeline))


def test_submit_blocks_alone_ask_for_the_finer_level() -> None:
    lines = generate([random_graph(1)], style=Style(level="any", info_only=True))[0].splitlines()
    submits = [
        line for number, line in enumerate(lines) if any(b"submit" in near for near in lines[number - 4 : number + 1])
    ]

    assert "TT_RUNTIME_MEMORY_LOG_LEVEL=any" in " ".join(diagnose(parse_log(submits)))


def test_runtime_lines_without_ops_or_readings_name_the_build_flag() -> None:
    found = diagnose(parse_log(["                 Always |    DEBUG | Device grid size = { 8, 8 }"]))

    assert "TT_RUNTIME_DEBUG=ON" in found[0]


def test_damage_is_told_with_the_first_line() -> None:
    log, _ = generate([random_graph(1)])

    found = " ".join(diagnose(parse_log([log[:-400].decode()])))

    assert "could not be read" in found or "no end in the log" in found


def test_a_cut_log_is_called_cut() -> None:
    from torchstone.memory.dialects.tt_runtime import TTRuntimeReader

    reader = TTRuntimeReader()
    reader.feed(generate([random_graph(1)])[0][:-10])

    assert any("middle of a line" in note for note in diagnose(reader.finish()))
