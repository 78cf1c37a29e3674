"""Damage of results that a later run takes over: the journals of `--resume`, and the captures in the cache."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.report.traces import transformer
from torchstone.errors import UnreadableFileError
from torchstone.models.inputs import InputOptions
from torchstone.record.check import Outcome, UnitResult
from torchstone.workers.journal import Journal, ResultJournal, read_results
from torchstone.workflows.capture_cache import CaptureKey, cached_capture, keep_answer, keep_capture, kept_answer

FAILED = UnitResult(outcome=Outcome.WRONG, reason="3 times the noise", elapsed_s=1.5)
PASSED = UnitResult(outcome=Outcome.PASSED)
Lines = list[bytes]


def _without_sum(line: bytes) -> bytes:
    return b"{" + line.partition(b",")[2]


CHANGES: dict[str, Callable[[Lines, Lines], Lines]] = {
    "a verdict is flipped": lambda own, _: [line.replace(b'"wrong"', b'"passed"') for line in own],
    "a digit differs": lambda own, _: [line.replace(b"1.5", b"1.6") for line in own],
    "a line is repeated": lambda own, _: [*own[:3], own[2], *own[3:]],
    "the first result is repeated at the end": lambda own, _: [*own, own[1]],
    "two lines are swapped": lambda own, _: [own[0], own[2], own[1], *own[3:]],
    "a line is missing": lambda own, _: [*own[:2], *own[3:]],
    "two keys are swapped": lambda own, _: [
        line.replace(b'"b"', b'"?"').replace(b'"a"', b'"b"').replace(b'"?"', b'"a"') for line in own
    ],
    "a line is of another journal": lambda own, other: [own[0], other[2], *own[2:]],
    "lines of another journal follow": lambda own, other: [*own, *other[1:]],
    "a line lost its middle": lambda own, _: [own[0], own[1][:30] + own[1][60:], *own[2:]],
    "a line lost its end": lambda own, _: [own[0], own[1][:-20] + b"\n", *own[2:]],
    "the checksums are missing": lambda own, _: [own[0], *map(_without_sum, own[1:])],
    "a line is empty": lambda own, _: [own[0], b"\n", *own[1:]],
    "a line is of zeros": lambda own, _: [own[0], bytes(60) + b"\n", *own[1:]],
    "the head is missing": lambda own, _: own[1:],
}


def written(path: Path, *results: tuple[str, UnitResult]) -> Path:
    with ResultJournal(path, UnitResult) as journal:
        for key, result in results:
            journal.keep(key, result)
    return path


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_journal_is_refused_and_kept(change: str, tmp_path: Path) -> None:
    path = written(tmp_path / "own", ("a", FAILED), ("b", PASSED), ("c", FAILED), ("a", PASSED))
    other = written(tmp_path / "other", ("x", PASSED), ("a", FAILED)).read_bytes().splitlines(keepends=True)
    own = path.read_bytes().splitlines(keepends=True)
    damaged = b"".join(CHANGES[change](own, other))
    assert damaged != path.read_bytes()
    path.write_bytes(damaged)

    with pytest.raises(UnreadableFileError):
        read_results(path, UnitResult)
    with pytest.raises(UnreadableFileError, match=r"move the file away|is not a torchstone journal"):
        ResultJournal(path, UnitResult)
    assert path.read_bytes() == damaged


def test_each_changed_byte_of_a_journal_is_found_or_cuts_the_last_line(tmp_path: Path) -> None:
    path = written(tmp_path / "own", ("a", FAILED), ("b", PASSED))
    whole = path.read_bytes()
    expected = read_results(path, UnitResult)
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        try:
            found = read_results(path, UnitResult)
        except UnreadableFileError:
            continue
        assert found == {key: expected[key] for key in found}, place


@pytest.mark.parametrize(
    "document",
    [{"outcome": 5}, {"outcome": "well"}, {}, {"outcome": "passed", "elapsed_s": "1"}, {"outcome": ["passed"]}],
    ids=str,
)
def test_a_result_of_other_types_ends_in_a_sentence(document: dict[str, object], tmp_path: Path) -> None:
    with Journal(tmp_path / "own") as journal:
        journal.append("a", document)

    with pytest.raises(UnreadableFileError, match="the result of 'a' in"):
        read_results(tmp_path / "own", UnitResult)
    with (
        ResultJournal(tmp_path / "own", UnitResult) as opened,
        pytest.raises(UnreadableFileError, match="the result of 'a' in"),
    ):
        opened.find("a")


def test_a_journal_of_version_1_is_read_and_continued_with_checksums(tmp_path: Path) -> None:
    path = tmp_path / "old"
    line = json.dumps({"key": "a", "document": {"outcome": "wrong"}})
    path.write_text(f'{{"schema": "torchstone/journal/1"}}\n{line}\n', encoding="ascii")
    written(path, ("b", PASSED), ("c", FAILED))

    assert [one.outcome for one in read_results(path, UnitResult).values()] == ["wrong", "passed", "wrong"]
    path.write_bytes(path.read_bytes().replace(b'"passed"', b'"wrong"'))
    with pytest.raises(UnreadableFileError, match="line 3 of"):
        read_results(path, UnitResult)


def test_a_pipe_in_the_place_of_a_journal_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "own")

    with pytest.raises(UnreadableFileError, match="not a regular file"):
        Journal(tmp_path / "own")
    with pytest.raises(UnreadableFileError, match="not a regular file"):
        Journal.read(tmp_path / "own")


# --- The cache ---


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TORCHSTONE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def key_of(model: str) -> CaptureKey:
    return CaptureKey(model=model, options=InputOptions(), how={})


def test_each_changed_byte_of_a_kept_capture_makes_it_count_as_none(cache: Path) -> None:
    key, trace = key_of("tiny:bert"), transformer(1)
    keep_capture(key, trace)
    (path,) = cache.glob("*.json")
    assert cached_capture(key) == trace
    whole = path.read_bytes()
    for place in range(0, len(whole), 41):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert cached_capture(key) is None, place
    for length in (0, 1, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        assert cached_capture(key) is None, length


def test_the_kept_capture_of_another_model_counts_as_none(cache: Path) -> None:
    keep_capture(key_of("tiny:bert"), transformer(1))
    (first,) = cache.glob("*.json")
    keep_capture(key_of("tiny:gpt2"), transformer(2))
    (second,) = set(cache.glob("*.json")) - {first}
    first.write_bytes(second.read_bytes())

    assert cached_capture(key_of("tiny:bert")) is None
    assert cached_capture(key_of("tiny:gpt2")) == transformer(2)


def test_a_changed_digit_of_a_kept_answer_makes_it_count_as_none(cache: Path) -> None:
    keep_answer("question", "state", FAILED)
    (path,) = cache.glob("*.answer")
    assert kept_answer("question", "state", UnitResult) == FAILED
    path.write_bytes(path.read_bytes().replace(b"1.5", b"1.6"))

    assert kept_answer("question", "state", UnitResult) is None
