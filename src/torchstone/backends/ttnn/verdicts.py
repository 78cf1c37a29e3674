"""What ttnn raised -> what it means: a refusal with its text, a lack of memory with its numbers, or no verdict."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

ACCEPTED, REFUSED, OUT_OF_MEMORY, NOT_RUN = "accepted", "refused", "out of memory", "not run"
_INFRASTRUCTURE = (  # the machinery around a call failed: this says nothing about the call
    "Failed to generate binaries",
    "cannot rename",
    "build failed",
    "no relocation sections",
    "first loadable segment",
    "tt_elffile",
    "jit_build",
    "sfpi",
    "hugepage",
    "No space left on device",
)
_ALLOCATION = re.compile(
    r"Not enough space to allocate (?P<total>\d+) B (?P<buffer>\w+) buffer across (?P<banks>\d+) banks, where each "
    r"bank needs to store (?P<needed>\d+) B, but bank size is (?P<bank>\d+) B"
    r"(?: \(allocated: (?P<allocated>\d+) B, free: (?P<free>\d+) B, largest free block: (?P<largest>\d+) B\))?"
)
_BEYOND = re.compile(r"grow to (?P<needed>\d+) B which is beyond max L1 size of (?P<bank>\d+) B")
_CLASH = re.compile(
    r"(?P<kind>circular|dataflow) buffers? in program \d+ clash with L1 buffers.*?L1 buffer allocated at (?P<start>\d+)"
    r" and static (?:circular|dataflow) buffer region ends at (?P<end>\d+)",
    re.DOTALL,
)
_NUMBER = re.compile(r"(?<![A-Za-z_])\d+")
_INFO = re.compile(r"\binfo:\s*(?P<text>.*?)(?:\bbacktrace:|\Z)", re.DOTALL)
_ASSERTED = re.compile(r"TT_(?:FATAL|THROW) @ (?P<place>\S+): (?P<condition>[^\n]*)")
_MOST_DETAIL = 500
_MOST_TEXT = 6_000


_NO_CHECK = (TypeError, ImportError, AttributeError, NameError, LookupError)  # Python around a call, not a check of it


class InfrastructureError(Exception):
    """The kernel cache, the compiler or the system failed: the call was not judged."""


@dataclass(frozen=True)
class Judgement:
    """The meaning of what one call raised."""

    outcome: str
    detail: str  # one line
    cause: str  # the same for refusals that differ in numbers only
    text: str  # all that ttnn said, with its backtrace
    place: str = ""  # the file and line of the check that refused
    memory: dict[str, Any] | None = None  # what was needed and what was free, in bytes per bank


def judge_error(error: BaseException) -> Judgement:
    """What an exception of a call means; raises InfrastructureError where it says nothing about the call."""
    text = str(error)
    if any(words in text for words in _INFRASTRUCTURE):
        msg = f"the call was not judged: {_first_line(_message(text) or text)}"
        raise InfrastructureError(msg) from error
    if isinstance(error, TypeError) and "incompatible function arguments" in text:
        detail = f"the installed ttnn has no such signature: {_called_with(text)}"
        return Judgement(NOT_RUN, detail, "no such signature", text[:_MOST_TEXT])
    message = _first_line(_message(text) or text) or type(error).__name__
    if isinstance(error, _NO_CHECK):
        said = f"{type(error).__name__}: {message}"[:_MOST_DETAIL]
        return Judgement(NOT_RUN, said, cause_of(said), text[:_MOST_TEXT])
    found = _ASSERTED.search(text)
    place = found["place"].removeprefix("/project/") if found else ""
    memory = _memory_facts(text)
    outcome = OUT_OF_MEMORY if memory is not None or isinstance(error, MemoryError) else REFUSED
    if outcome == REFUSED and found is None and not isinstance(error, RuntimeError):
        message = f"{type(error).__name__}: {message}"
    return Judgement(outcome, message[:_MOST_DETAIL], cause_of(message), text[:_MOST_TEXT], place, memory)


def cause_of(message: str) -> str:
    """A message with every number replaced: refusals of one check have the same cause."""
    return _NUMBER.sub("N", message)[:200]


def _message(text: str) -> str:
    """What stands under `info:`, or the condition that does not hold."""
    found = _INFO.search(text)
    said = " ".join(found["text"].split()) if found else ""
    if said:
        return said
    asserted = _ASSERTED.search(text)
    return f"requires {asserted['condition'].strip()}" if asserted else ""


def _first_line(text: str) -> str:
    return next((" ".join(line.split()) for line in text.splitlines() if line.strip()), "")


def _called_with(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    place = next((number for number, line in enumerate(lines) if line.startswith("Called with")), None)
    return (lines[place + 1] if place is not None and place + 1 < len(lines) else lines[0])[:_MOST_DETAIL]


def _memory_facts(text: str) -> dict[str, object] | None:
    """Needed and free bytes per bank, where the text is about memory."""
    if found := _ALLOCATION.search(text):
        numbers = {name: int(number) for name, number in found.groupdict().items() if number and name != "buffer"}
        return {"buffer": found["buffer"], **{f"{name}_bytes": number for name, number in numbers.items()}}
    if found := _BEYOND.search(text):
        return {"buffer": "L1", "needed_bytes": int(found["needed"]), "bank_bytes": int(found["bank"])}
    if found := _CLASH.search(text):
        start, end = int(found["start"]), int(found["end"])
        return {"buffer": "L1", "needed_bytes": end, "largest_bytes": start, "clash": found["kind"]}
    return {"buffer": "unknown"} if "Out of Memory" in text else None
