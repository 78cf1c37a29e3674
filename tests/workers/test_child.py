import json
from typing import Any

import pytest

from torchstone.workers import child
from torchstone.workers.child import MOST_ERROR_CHARACTERS, MOST_TRACEBACK_CHARACTERS, describe_error, resolve


def raised(error: BaseException) -> dict[str, Any]:
    with pytest.raises(type(error)) as caught:
        raise error
    return describe_error(caught.value)


def test_an_entry_is_a_module_and_a_function() -> None:
    assert resolve("os.path:join")("a", "b") == "a/b"


@pytest.mark.parametrize("entry", ["no.such.module:f", "os.path:no_such_function", "os.path", ""])
def test_an_entry_that_is_not_there_raises(entry: str) -> None:
    with pytest.raises((ImportError, AttributeError, ValueError)):
        resolve(entry)


@pytest.mark.parametrize(
    ("error", "expected"),
    [(ValueError("x"), "ValueError: x"), (SystemExit(3), "SystemExit: 3"), (KeyError("k"), "KeyError: 'k'")],
)
def test_an_error_is_one_line_and_its_traceback(error: BaseException, expected: str) -> None:
    described = raised(error)

    assert described["error"] == expected
    assert described["traceback"].endswith(f"{expected}\n")


@pytest.mark.parametrize(
    ("error", "lack"),
    [
        (MemoryError(), True),
        (
            RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to"),
            True,
        ),
        (RuntimeError("std::bad_alloc"), True),
        (RuntimeError("shape mismatch"), False),
    ],
)
def test_lack_of_memory_is_told_from_other_errors(error: BaseException, *, lack: bool) -> None:
    assert raised(error)["out_of_memory"] is lack


def test_an_error_of_any_length_stays_short() -> None:
    described = raised(ValueError("x" * 1_000_000))

    assert len(described["error"]) < 2 * MOST_ERROR_CHARACTERS
    assert len(described["traceback"]) < 2 * MOST_TRACEBACK_CHARACTERS


def test_an_error_with_half_a_character_can_be_sent() -> None:
    assert "\\ud800" in raised(ValueError("\ud800"))["error"]


def test_an_answer_that_is_too_large_is_an_error_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "MOST_ANSWER_BYTES", 100)
    line, fine = child._answer({"entry": "os.path:basename", "payload": "x" * 200})

    assert not fine
    assert "at most 100 are taken" in json.loads(line)["error"]


def test_a_name_that_is_not_utf_8_is_written_out() -> None:
    line = child._line({"path": "caf\udce9", "text": 'é😀 \\ "'})

    assert json.loads(line) == {"path": "caf\\udce9", "text": 'é😀 \\ "'}
    line.decode("utf-8")
