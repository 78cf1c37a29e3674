"""The text of an answer -> an entry; only data is read from it, never code."""

import json

import msgspec

from torchstone.errors import FormulaError
from torchstone.record.base import Record
from torchstone.record.formula import FlopAnalysis, MemoryAnalysis

MAX_ANSWER_CHARACTERS = 1_000_000


class Answer(Record, frozen=True, kw_only=True):
    """What an agent may decide about an entry; the rest is known."""

    flop_analysis: FlopAnalysis
    memory_analysis: MemoryAnalysis
    defaults: dict[str, str] = {}
    domain: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()


def read_answer(text: str) -> Answer:
    """The first JSON object in the text that is an answer; words around it are left out."""
    if len(text) > MAX_ANSWER_CHARACTERS:
        msg = f"the answer has {len(text)} characters, more than {MAX_ANSWER_CHARACTERS}"
        raise FormulaError(msg)
    found = _first_object(text)
    if found is None:
        msg = "the answer holds no JSON object with the key flop_analysis"
        raise FormulaError(msg)
    try:
        return msgspec.convert(found, Answer)
    except msgspec.ValidationError as error:
        msg = f"the answer is not of the form that was asked for: {error}"
        raise FormulaError(msg) from error


def _first_object(text: str) -> dict[str, object] | None:
    decoder = json.JSONDecoder()
    position = text.find("{")
    while position >= 0:
        try:
            found, end = decoder.raw_decode(text, position)
        except (ValueError, RecursionError):
            position = text.find("{", position + 1)
            continue
        if isinstance(found, dict) and "flop_analysis" in found:
            return found
        position = text.find("{", end)
    return None
