import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.configs.real_files import real_file
from tests.configs.samples import ATEN_TEXT
from torchstone.configs.aten_text import export_aten, is_aten_text, read_aten_text, write_source
from torchstone.configs.exchange import Imported
from torchstone.record.config import Configuration, SeenConfiguration
from torchstone.record.value import Argument, Opaque


def read(text: str) -> Imported:
    return read_aten_text(text, source="net.txt", run="1", model="net")


def written(imported: Imported) -> str:
    return write_source(imported.runs[0], imported.seen)


def test_lines_become_configurations_with_their_counts() -> None:
    imported = read(ATEN_TEXT)

    assert {one.configuration.op: one.calls for one in imported.seen if one.calls > 20} == {
        "aten.addmm.default": 49,
        "aten.masked_fill.Scalar": 24,
    }
    assert len(imported.seen) == 4
    assert imported.unread == ()


def test_an_op_that_comes_back_later_adds_to_its_calls() -> None:
    (copy,) = (one for one in read(ATEN_TEXT).seen if len(one.occurrences) == 2)

    assert [place.call_site for place in copy.occurrences] == ["line 4", "line 7"]
    assert copy.calls == 3


def test_a_source_is_written_again_byte_for_byte() -> None:
    assert written(read(ATEN_TEXT)) == ATEN_TEXT


@pytest.mark.parametrize(
    "text",
    [
        "Operator: aten.mm.default\ncnt: 1, ((T([2, 3], f32, [1, 2]),), {})\n",  # another spelling
        "Operator: aten.mm.default\r\ncnt: 1, ((1,), {})\r\n",
        "Operator: aten.mm.default\ncnt: 1, ((1,), {})",  # no end of line
        "# made by hand\n\nOperator: aten.mm.default\n\ncnt: 1, ((1,), {})\n\n\n",
        "Operator: aten.mm.default\nOperator: aten.mm.default\ncnt: 1, ((1,), {})\n",
        "Operator: aten.mm.default\ncnt: 1, ((1,), {})\nOperator: aten.mm.default\ncnt: 2, ((1,), {})\n",
        "Operator: aten.mm.default\ncnt: 1, ((broken\ncnt: 2, ((1,), {})\nOperator: aten.t\n",
        "cnt: 1, ((1,), {})\n",
        "Operator:  aten.mm.default \ncnt: 1,  ((1,), {})\n",
    ],
)
def test_whatever_stands_in_a_source_is_written_again(text: str) -> None:
    assert written(read(text)) == text


@given(st.lists(st.sampled_from([*ATEN_TEXT.splitlines(), "", "cnt: x", "Operator: ", "?"]), max_size=12))
def test_lines_in_any_order_are_written_again(lines: list[str]) -> None:
    text = "\n".join(lines)

    assert written(read(text)) == text


def test_a_line_that_cannot_be_read_is_named_and_kept() -> None:
    imported = read("Operator: aten.mm.default\ncnt: 1, ((open('x'),), {})\n")

    assert imported.seen == ()
    assert [part.where for part in imported.unread] == ["line 2"]
    assert (2, "cnt: 1, ((open('x'),), {})") in imported.runs[0].kept_lines


@pytest.mark.parametrize(("text", "yes"), [(ATEN_TEXT, True), ("cnt: 1, ((), {})", True), ("{}", False), ("", False)])
def test_a_trace_is_known_by_its_look(text: str, yes: bool) -> None:  # noqa: FBT001 - a case of the table
    assert is_aten_text(text) is yes


def test_one_source_is_exported_as_it_was() -> None:
    imported = read(ATEN_TEXT)

    assert export_aten(imported.runs, imported.seen).text == ATEN_TEXT


def test_configurations_from_anywhere_are_exported_with_their_calls_added_up() -> None:
    one, other = read(ATEN_TEXT), read_aten_text(ATEN_TEXT, source="b.txt", run="1", model="b")
    exported = export_aten((*one.runs, *other.runs), one.seen)

    again = read(exported.text)
    assert {seen.key: seen.calls for seen in again.seen} == {seen.key: seen.calls for seen in one.seen}


def test_what_the_text_has_no_words_for_is_left_out_and_counted() -> None:
    strange = Configuration(op="aten.x", arguments=(Argument(name="a", value=Opaque(class_name="Thing")),))
    seen = [SeenConfiguration(configuration=one) for one in (strange, Configuration(op="ttnn.add"))]

    exported = export_aten((), seen)

    assert exported.configurations == 0
    assert sum(exported.left_out.values()) == 2


@pytest.mark.parametrize(
    ("name", "configurations", "ops", "calls"),
    [
        ("aten/aten_inputs_hf_45_models.txt", 2085, 87, 55326),
        ("aten/torchbench_train__fambench_dlrm_training.txt", 1038, 25, 2333),
    ],
)
def test_real_traces_are_read_whole_and_written_again(name: str, configurations: int, ops: int, calls: int) -> None:
    content = real_file(name).read_bytes()
    imported = read(content.decode())

    assert imported.unread == ()
    assert len(imported.seen) == configurations
    assert len({one.configuration.op for one in imported.seen}) == ops
    assert sum(one.calls for one in imported.seen) == calls
    assert hashlib.sha256(written(imported).encode()).digest() == hashlib.sha256(content).digest()
