from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchstone.workers.lane import OutputTail, TaskOutputs


def fed(kept_bytes: int, *pieces: bytes) -> OutputTail:
    tail = OutputTail(kept_bytes)
    for piece in pieces:
        tail.feed(piece)
    return tail


def test_little_output_is_kept_whole() -> None:
    assert fed(100, b"one\n", b"two\n").text() == "one\ntwo\n"


def test_of_much_output_the_two_ends_are_kept() -> None:
    tail = fed(8, *[bytes([letter]) for letter in b"abcdefghijkl"])

    assert tail.text() == "abcd\n[... 4 bytes left out ...]\nijkl"
    assert tail.seen_bytes == 12


@given(pieces=st.lists(st.binary(max_size=40)), kept_bytes=st.integers(0, 60))
def test_pieces_do_not_matter_and_the_memory_is_bounded(pieces: list[bytes], kept_bytes: int) -> None:
    tail, at_once = fed(kept_bytes, *pieces), fed(kept_bytes, b"".join(pieces))

    assert tail.text() == at_once.text()
    assert tail.seen_bytes == sum(map(len, pieces))
    assert len(tail._head) + len(tail._tail) <= 2 * kept_bytes + 40


@pytest.mark.parametrize("cut", [b"\xff\xfe", "ü".encode()[:1]])
def test_bytes_that_are_no_text_are_shown_as_such(cut: bytes) -> None:
    assert "\N{REPLACEMENT CHARACTER}" in fed(100, cut).text()


MARK = b"\0end\0"


def outputs_of(tasks: int, *pieces: bytes) -> list[str]:
    """What each task has printed, each told when all has come."""
    outputs = TaskOutputs(MARK, kept_bytes=100)
    for _ in range(tasks):
        outputs.expect(100)
    for piece in pieces:
        outputs.feed(piece)
    outputs.finish()
    found = []
    for _ in range(tasks):
        found.append(outputs.first.text())
        outputs.drop_first()
    return found


@given(printed=st.lists(st.text("ab\0en", max_size=6), min_size=1, max_size=4), cuts=st.lists(st.integers(0, 40)))
def test_each_task_gets_what_it_printed_wherever_the_stream_is_cut(printed: list[str], cuts: list[int]) -> None:
    stream = b"".join(one.encode() + MARK for one in printed)
    places = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]

    pieces = [stream[start:end] for start, end in pairwise(places)]

    assert outputs_of(len(printed), *pieces) == printed


def test_what_looks_like_the_beginning_of_a_mark_is_not_lost() -> None:
    assert outputs_of(2, b"one" + MARK + b"two\0en") == ["one", "two\0en"]


def test_a_task_has_ended_when_its_mark_has_come() -> None:
    outputs = TaskOutputs(MARK, kept_bytes=100)
    outputs.expect(100)
    outputs.feed(b"words" + MARK[:3])
    before = outputs.first_has_ended
    outputs.feed(MARK[3:])

    assert (before, outputs.first_has_ended) == (False, True)


def test_what_is_printed_between_tasks_is_nobodys() -> None:
    outputs = TaskOutputs(MARK, kept_bytes=100)
    outputs.feed(b"too early")
    outputs.expect(100)
    outputs.feed(b"words")

    assert outputs.first.text() == "words"
