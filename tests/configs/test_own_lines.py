import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.record.config_strategies import runs, seen
from torchstone.configs.exchange import export_lines, is_exchange_text, read_lines, write_lines
from torchstone.errors import UnreadableFileError
from torchstone.record.config import Configuration, SeenConfiguration, TraceRun, in_order

ONE = SeenConfiguration(configuration=Configuration(op="aten.mm.default"))


@settings(max_examples=20)
@given(st.lists(runs, max_size=2), st.lists(seen, max_size=3))
def test_what_is_written_is_read_again(expected: list[TraceRun], given_seen: list[SeenConfiguration]) -> None:
    text = export_lines(expected, given_seen).text

    again = read_lines(text, origin="x")

    assert sorted(map(repr, again.runs)) == sorted(map(repr, expected))
    assert list(map(repr, again.seen)) == [repr(in_order(one)) for one in given_seen]
    assert again.unread == ()


def test_a_file_is_known_by_its_heading() -> None:
    text = export_lines([], [ONE]).text

    assert is_exchange_text(text)
    assert not is_exchange_text("{}")
    assert text.startswith('{"schema":"torchstone/configurations/1"}\n')


def test_configurations_are_counted_and_runs_are_not() -> None:
    assert export_lines([TraceRun(source="a", run="1")], [ONE]).configurations == 1


def test_a_line_that_cannot_be_read_is_named_and_the_others_are_kept() -> None:
    head, line = write_lines([], [ONE])

    imported = read_lines((head + b'{"seen":5}\n' + line + b"cut off").decode(), origin="x")

    assert imported.seen == (ONE,)
    assert [part.where for part in imported.unread] == ["line 2", "line 4"]


def test_a_broken_heading_is_refused() -> None:
    with pytest.raises(UnreadableFileError, match="heading"):
        read_lines('{"schema":"torchstone/', origin="x")
