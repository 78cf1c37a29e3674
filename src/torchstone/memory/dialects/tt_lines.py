"""One line of a tt-mlir runtime log, without its prefixes -> what it says."""

import re
from enum import IntEnum
from typing import NamedTuple

from torchstone.record.memory import NONE, Failure, FailureKind, MemoryState


class Kind(IntEnum):
    """What a line is."""

    NOTHING = 0
    STATE = 1
    OP = 2
    BLOCK = 3
    BEFORE_SUBMIT = 4
    AFTER_SUBMIT = 5
    START = 6
    FINISH = 7
    RETAINED = 8
    CACHE_KEY = 9
    CACHE_HIT = 10
    CACHE_MISS = 11
    LEFT_OUT = 12
    UNREAD = 13
    CALLED_DONE = 14


class Line(NamedTuple):
    """A line that was understood: its kind and the text that matters."""

    kind: Kind
    value: str = ""
    reason: str = ""


TICKS_PER_MIB = 1000  # readings have three decimals
LEFT_OUT_MESSAGE = "torchstone: lines are left out here"

_ESCAPES = re.compile(rb"\x1b\[[0-9;]*[A-Za-z]")
_RANK = re.compile(rb"\[(\d{1,9},\d{1,9})\]<std(?:out|err|diag)>: ?")
_STAMP = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z ")
_PREFIX = re.compile(rb"([A-Za-z]\w{0,63}) \| +(TRACE|DEBUG|INFO|WARNING|ERROR|FATAL) \| ")
_BROKEN_PREFIX = re.compile(rb"^ *(?:RuntimeTTNN|RuntimeTTMetal\w*|Always) \|")
_SOURCE = re.compile(r"\S+:\d+ - ")
_STATE = re.compile(
    rb"Device (\w+) memory state: MemoryView\{numBanks: (\d{1,9}), totalBytesPerBank: (\d{1,15}\.\d{3}) MB, "
    rb"totalBytesAllocatedPerBank: (\d{1,15}\.\d{3}) MB, totalBytesFreePerBank: (\d{1,15}\.\d{3}) MB, "
    rb"largestContiguousBytesFreePerBank: (\d{1,15}\.\d{3}) MB\}"
)
_WORD_AT_END = re.compile(r"[\w.$-]+")
_RUNNING = re.compile(r"([\w.$-]+) with hash: (\w+)")
_OUT_OF_MEMORY = re.compile(
    r"Out of Memory: Not enough space to allocate (\d{1,18}) B (\w+) buffer across (\d{1,18}) banks, "
    r"where each bank needs to store (\d{1,18}) B, but bank size is (?:only )?(\d{1,18}) B"
    r"(?: \(allocated: \d+ B, free: (\d{1,18}) B, largest free block: (\d{1,18}) B\))?"
)
_CIRCULAR_BUFFERS = re.compile(
    r"Statically allocated (?:circular|dataflow) buffers .*?(?:core range \[(?P<cores>.{0,2000}?)\]"
    r"(?:\. L1 buffer allocated at (?P<start>\d{1,18})"
    r" and static (?:circular|dataflow) buffer region ends at (?P<end>\d{1,18})"
    r"| grow to (?P<size>\d{1,18}) B which is beyond max L1 size of (?P<limit>\d{1,18}) B)|$)"
)
_STATIC_BUFFERS = (b"Statically allocated circular buffers", b"Statically allocated dataflow buffers")

_OP = "Executing operation: "
_HEADS = {
    "Device memory state before operation ": Kind.BLOCK,
    "Starting execution of program: ": Kind.START,
    "Finished execution of program: ": Kind.FINISH,
    "Running LoadCachedOp for function ": Kind.CACHE_KEY,
    "Cache hit for function: ": Kind.CACHE_HIT,
    "Cache miss or invalid cache for function: ": Kind.CACHE_MISS,
    "executed sub-func: ": Kind.CALLED_DONE,
}
_WHOLE = {
    "Device memory state before submit": Kind.BEFORE_SUBMIT,
    "Device memory state after submit": Kind.AFTER_SUBMIT,
    "Tensor is retained thus not deallocating": Kind.RETAINED,
    LEFT_OUT_MESSAGE: Kind.LEFT_OUT,
}
_STATE_HEAD = re.compile(r"Device (?:DRAM|L1|L1_SMALL|TRACE|\w+) memory state")
_OUR_HEADS = (_OP, *_HEADS, *_WHOLE, "Device DRAM memory state: ", "Device L1 memory state: ")
_UNPREFIXED = (
    b"Executing operation: ",
    b"Device memory state ",
    b" memory state: MemoryView{",
    b"execution of program: ",
)
_SHORTEST_HEAD = 4


class Stripped(NamedTuple):
    """A line without the prefixes of CI services and launchers."""

    text: bytes
    rank: str  # "" where there is none


def stamp_end(raw: bytes) -> int:
    """The end of the timestamp that a CI service put in front of a line; 0 when there is none."""
    found = _STAMP.match(raw) if raw[10:11] == b"T" else None
    return found.end() if found else 0


def strip_line(raw: bytes) -> Stripped:
    """Remove colours, the carriage return, timestamps of CI services and ranks of multi-host runs."""
    text = raw[:-1] if raw.endswith(b"\r") else raw
    if b"\x1b" in text:
        text = _ESCAPES.sub(b"", text)
    rank = ""
    for _ in range(2):
        text = text[stamp_end(text) :]
        if (found := _RANK.match(text)) is not None:
            text, rank = text[found.end() :], found.group(1).decode()
    return Stripped(text, rank)


def read_line(text: bytes) -> Line | None:
    """Parse a line of the runtime; None for any other line."""
    prefix = _PREFIX.search(text) if b" | " in text else None
    if prefix is not None:
        message = text[prefix.end() :].decode(errors="replace")
        if prefix.group(2) == b"TRACE" and (source := _SOURCE.match(message)) is not None:
            message = message[source.end() :]
        is_ours = prefix.group(1) == b"Always" or prefix.group(1).startswith(b"Runtime")
        return _read_message(message) or (Line(Kind.NOTHING) if is_ours else None)
    for head in _UNPREFIXED:
        if (at := text.find(head)) >= 0:
            start = text.rfind(b"Device ", 0, at + 8) if head.startswith((b" memory", b"Device")) else at
            start = text.rfind(b" ", 0, max(start - 1, 0)) + 1 if head.startswith(b"execution") else start
            found = _read_message(text[max(start, 0) :].decode(errors="replace"))
            return found or Line(Kind.UNREAD, reason="a runtime line without its start")
    if _BROKEN_PREFIX.match(text):
        return Line(Kind.UNREAD, reason="a runtime line that is cut off in its prefix")
    return None


def _read_message(message: str) -> Line | None:
    if message.startswith(_OP):
        return Line(Kind.OP, message[len(_OP) :].rstrip())
    if _STATE_HEAD.match(message):
        if _STATE.match(message.encode()) is None:
            return Line(Kind.UNREAD, reason="an incomplete memory reading")
        return Line(Kind.STATE)
    for head, kind in _HEADS.items():
        if message.startswith(head):
            found = (_RUNNING if kind is Kind.CACHE_KEY else _WORD_AT_END).match(message, len(head))
            if found is None:
                return Line(Kind.UNREAD, reason="the name at its end is missing")
            return Line(kind, found.group(2) if kind is Kind.CACHE_KEY else found.group())
    for whole, kind in _WHOLE.items():
        if message.startswith(whole):
            return Line(kind)
    cut = message.rstrip()
    if len(cut) >= _SHORTEST_HEAD and any(head.startswith(cut) for head in _OUR_HEADS):
        return Line(Kind.UNREAD, reason="a runtime line that is cut off")
    return None


def find_reading(text: bytes) -> "re.Match[bytes] | None":
    """A complete memory reading anywhere in a line."""
    return _STATE.search(text) if b"MemoryView{" in text else None


def read_state(reading: "re.Match[bytes]") -> tuple[str, MemoryState]:
    """A memory reading: the memory's name and the numbers in ticks."""
    name, banks, *sizes = reading.groups()
    capacity, allocated, free, largest = (int(size.replace(b".", b"")) for size in sizes)  # three decimals: ticks
    state = MemoryState(banks=int(banks), capacity=capacity, allocated=allocated, free=free, largest_free=largest)
    return name.decode(), state


def read_failure(text: bytes, line: int) -> Failure | None:
    """An allocation that failed, from any line that carries the message."""
    if b"Out of Memory: Not enough" in text:
        found = _OUT_OF_MEMORY.search(text.decode(errors="replace"))
        if found is not None:
            size, memory, banks, needed, bank, free, largest = found.groups()
            return Failure(
                kind=FailureKind.OUT_OF_MEMORY,
                op=NONE,
                line=line,
                message=found.group(),
                memory=memory,
                banks=int(banks),
                buffer_bytes=int(size),
                needed_bytes=int(needed),
                bank_bytes=int(bank),
                free_bytes=int(free) if free else None,
                largest_block_bytes=int(largest) if largest else None,
            )
    if any(words in text for words in _STATIC_BUFFERS):
        found = _CIRCULAR_BUFFERS.search(text.decode(errors="replace"))
        if found is not None:
            numbers = {name: int(found[name]) if found[name] else None for name in ("start", "end", "size", "limit")}
            return Failure(
                kind=FailureKind.CIRCULAR_BUFFERS,
                op=NONE,
                line=line,
                message=found.group().strip(),
                memory="L1",
                bank_bytes=numbers["limit"],
                static_buffers_end=numbers["size"] if numbers["end"] is None else numbers["end"],
                tensor_start=numbers["start"],
                cores=found["cores"] or "",
            )
    return None
