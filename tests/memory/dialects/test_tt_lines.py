import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchstone.memory.dialects.tt_lines import (
    Kind,
    find_reading,
    read_failure,
    read_line,
    read_state,
    stamp_end,
    strip_line,
)
from torchstone.record.memory import FailureKind

READING = (
    "Device DRAM memory state: MemoryView{numBanks: 12, totalBytesPerBank: 1024.000 MB, totalBytesAllocatedPerBank: "
    "0.008 MB, totalBytesFreePerBank: 1023.992 MB, largestContiguousBytesFreePerBank: 1023.992 MB}"
)
OUT_OF_MEMORY = (
    b"Out of Memory: Not enough space to allocate 58720256 B DRAM buffer across 12 banks, where each bank needs to "
    b"store 4894720 B, but bank size is 1071821792 B "
    b"(allocated: 888424448 B, free: 183397344 B, largest free block: 3382944 B)"
)


def runtime(message: str, *, category: str = "Always", level: str = "INFO") -> bytes:
    return f"{category:>23} | {level:>8} | {message}".encode()


@pytest.mark.parametrize(
    ("message", "kind", "value"),
    [
        ("Executing operation: %0 = x", Kind.OP, "%0 = x"),
        ("Device memory state before operation ToLayoutOp", Kind.BLOCK, "ToLayoutOp"),
        ("Device memory state before submit", Kind.BEFORE_SUBMIT, ""),
        ("Device memory state after submit", Kind.AFTER_SUBMIT, ""),
        ("Starting execution of program: main", Kind.START, "main"),
        ("Finished execution of program: main_const_eval_0", Kind.FINISH, "main_const_eval_0"),
        ("Running LoadCachedOp for function f with hash: 325ad2", Kind.CACHE_KEY, "325ad2"),
        ("Cache hit for function: f", Kind.CACHE_HIT, "f"),
        ("Cache miss or invalid cache for function: f", Kind.CACHE_MISS, "f"),
        ("Tensor is retained thus not deallocating. To deallocate, set", Kind.RETAINED, ""),
        ("Device grid size = { 8, 8 }", Kind.NOTHING, ""),
        (READING, Kind.STATE, ""),
    ],
)
def test_each_message_is_told_apart(message: str, kind: Kind, value: str) -> None:
    line = read_line(runtime(message))

    assert line is not None
    assert (line.kind, line.value) == (kind, value)


def test_a_reading_needs_no_prefix() -> None:
    line = read_line(READING.encode())

    assert line is not None
    assert line.kind is Kind.STATE


def test_a_print_without_newline_before_a_runtime_line_does_not_hide_it() -> None:
    line = read_line(b"50%|#####     | 5/10" + runtime("Starting execution of program: main"))

    assert line is not None
    assert (line.kind, line.value) == (Kind.START, "main")


def test_trace_lines_name_their_source_first() -> None:
    line = read_line(runtime("executor.cpp:12 - Cache hit for function: f", level="TRACE"))

    assert line is not None
    assert line.kind is Kind.CACHE_HIT


@pytest.mark.parametrize(
    "text",
    [
        runtime("Executing oper"),
        runtime(READING[:-20]),
        runtime("Starting execution of program: "),
        b"            RuntimeTTNN |    DEB",
        b"and then Device memory state be",
    ],
)
def test_a_line_that_claims_to_be_the_runtimes_and_breaks_off_is_unread(text: bytes) -> None:
    line = read_line(text)

    assert line is not None
    assert line.kind is Kind.UNREAD
    assert line.reason


@pytest.mark.parametrize(
    "text",
    [
        b"= test session starts =",
        b"2026-05-14 01:00:31.755 | critical |          Always | TT_FATAL: Out of Memory",
        b"2026-03-16 10:11:00.400 (   0.400s) [        7F2C9740]     client_instance.cc:603      1| ClientInstance",
        b"",
    ],
)
def test_lines_of_others_are_not_ours(text: bytes) -> None:
    assert read_line(text) is None


@given(st.binary())
def test_no_bytes_make_the_reader_fail(text: bytes) -> None:
    read_line(strip_line(text).text)
    read_failure(text, 1)


def test_all_prefixes_come_off() -> None:
    raw = b"2025-10-14T04:33:23.9048735Z [1,0]<stdout>: \x1b[32m   Always\x1b[0m | x\r"

    assert strip_line(raw) == (b"   Always | x", "1,0")
    assert raw[stamp_end(raw) :].startswith(b"[1,0]")
    assert stamp_end(b"2025-10-14 is no time") == 0


def test_a_reading_keeps_every_digit() -> None:
    reading = find_reading(runtime(READING))
    assert reading is not None
    name, state = read_state(reading)

    assert name == "DRAM"
    assert (state.banks, state.capacity, state.allocated, state.free) == (12, 1024000, 8, 1023992)


def test_an_out_of_memory_line_gives_exact_bytes() -> None:
    failure = read_failure(b"TT_FATAL: " + OUT_OF_MEMORY + b" (assert.hpp:103)", 7)

    assert failure is not None
    assert failure.kind is FailureKind.OUT_OF_MEMORY
    assert (failure.memory, failure.banks, failure.buffer_bytes) == ("DRAM", 12, 58720256)
    assert (failure.needed_bytes, failure.free_bytes, failure.largest_block_bytes) == (4894720, 183397344, 3382944)


def test_the_old_form_does_not_say_what_was_free() -> None:
    old = (
        b"Out of Memory: Not enough space to allocate 2162688 B L1_SMALL buffer across 64 banks, where each bank needs "
        b"to store 33792 B, but bank size is only 32768 B"
    )
    failure = read_failure(old, 7)

    assert failure is not None
    assert (failure.needed_bytes, failure.bank_bytes, failure.free_bytes) == (33792, 32768, None)


def test_a_clash_of_circular_buffers_is_a_failure_of_its_own() -> None:
    failure = read_failure(b"Statically allocated circular buffers in program 30 clash with L1 buffers on core", 7)

    assert failure is not None
    assert failure.kind is FailureKind.CIRCULAR_BUFFERS


def test_a_clash_keeps_its_numbers() -> None:
    clash = read_failure(
        b"Statically allocated dataflow buffers in program 2 clash with L1 buffers on core range "
        b"[(x=0,y=0) - (x=7,y=7)]. L1 buffer allocated at 128064 and static dataflow buffer region ends at 638304",
        7,
    )
    grown = read_failure(
        b"Statically allocated circular buffers on core range [0-0 - 0-0] grow to 2148032 B which is beyond max L1 "
        b"size of 1499136 B",
        8,
    )

    assert clash is not None
    assert grown is not None
    assert (clash.static_buffers_end, clash.tensor_start, clash.cores) == (638304, 128064, "(x=0,y=0) - (x=7,y=7)")
    assert (grown.static_buffers_end, grown.bank_bytes, grown.cores) == (2148032, 1499136, "0-0 - 0-0")
