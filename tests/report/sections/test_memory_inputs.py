from pathlib import Path

from tests.memory.log_generator.demo import healthy_log
from tests.memory.log_generator.graphs import random_graph
from tests.memory.log_generator.run import generate
from tests.memory.log_generator.style import Style
from tests.report.memory_folders import memory_folder
from torchstone.report.sections.memory_inputs import build


def test_weights_are_counted_apart_from_inputs(tmp_path: Path) -> None:
    view = build(memory_folder(healthy_log(), tmp_path))

    assert [(card.title, card.detail) for card in view.cards] == [
        ("Weights", "6 arguments"),
        ("Constants", "1 argument"),
        ("Inputs", "2 arguments"),
    ]
    assert view.tables[0].rows == 9


def test_without_a_dump_the_switch_is_named(tmp_path: Path) -> None:
    view = build(memory_folder(generate([random_graph(3)], style=Style(dumps=False))[0], tmp_path))

    assert "TTXLA_LOGGER_LEVEL" in view.notes[0]
    assert view.tables[0].rows == 0
