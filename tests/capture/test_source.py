import inspect

import pytest
from torch import nn

from tests.capture import nets
from torchstone.capture.module_tree import source_of


@pytest.mark.parametrize(
    "cls", [nets.Feed, nets.CacheObject, nets.Broken, nn.Linear, nn.MultiheadAttention, nn.Sequential]
)
def test_lines_are_those_that_python_itself_finds(cls: type) -> None:
    lines, first = inspect.getsourcelines(cls)
    found = source_of(cls)

    assert found is not None
    assert (found.first_line, found.last_line) == (first, first + len(lines) - 1)
    assert found.file == inspect.getsourcefile(cls)


def test_a_margin_inside_a_string_or_brackets_is_not_the_end() -> None:
    # fmt: off
    class Odd:
        quotes = '"""'
        table = (
1,
        )
        text = """
class Inner:
"""
        after = 1
    # fmt: on

    found = source_of(Odd)

    assert found is not None
    assert found.last_line - found.first_line == 8


def test_text_at_the_margin_inside_a_string_does_not_end_a_class() -> None:
    class Poem:
        text = """
roses are red
"""
        after = 1

    found = source_of(Poem)

    assert found is not None
    assert found.last_line - found.first_line == 4


def test_of_two_classes_with_one_name_the_right_one_is_found() -> None:
    def first() -> type:
        class Twin:
            def method(self) -> int:
                return 1

        return Twin

    def second() -> type:
        class Twin:
            def method(self) -> int:
                return 2

        return Twin

    one, two = source_of(first()), source_of(second())

    assert one is not None
    assert two is not None
    assert one.first_line < two.first_line


def test_a_class_made_at_run_time_has_no_source() -> None:
    assert source_of(type("Made", (), {"__module__": "builtins"})) is None
