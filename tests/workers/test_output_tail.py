import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchstone.workers.output_tail import OutputTail


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
