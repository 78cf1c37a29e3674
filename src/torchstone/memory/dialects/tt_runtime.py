"""Logs of the tt-mlir runtime, as tt-xla and ttrt print them.

Passes repeat, so nearly every line has been seen before. The log is cut into pieces that begin with an op line. The op
line and the lines behind it (a block of readings, mostly) are looked up apart from each other, because the same op runs
around other memory in the next pass. Only what is new is read line by line.
"""

import re
from hashlib import blake2b
from itertools import accumulate
from typing import NamedTuple

import msgspec

from torchstone.memory.dialects.tt_lines import (
    TICKS_PER_MIB,
    Kind,
    Line,
    find_reading,
    read_failure,
    read_line,
    read_state,
    stamp_end,
    strip_line,
)
from torchstone.memory.line_prefixes import Prefixes, find_prefixes, has_own_lines
from torchstone.memory.log_source import LONGEST_LINE_BYTES, LineSplitter
from torchstone.memory.mlir_text import ModuleDumpReader, OpReader, guess_call
from torchstone.memory.timeline_builder import Rows, Scale, TimelineBuilder
from torchstone.record.memory import NONE, Evidence, MemoryTimeline, Moment, OpFlag

_KNOWN_BYTES = 48 << 20  # what the texts of known lines and pieces may take, each
_MOST_PREFIXES = 1000
_UNDECIDED_BYTES = 16 << 20  # of a log in which no line shows whether there are prefixes
_LONGEST_PIECE = 1 << 20
_LIKELY_BYTES = 600  # of an op line
_SHOWN = 4096  # of a line, where its beginning is enough
_ROW_ALIGNMENT_BYTES, _LARGE_ROW_ALIGNMENT_BYTES = 32, 64  # of DRAM: Wormhole, Blackhole
_LARGE_BANK_MIB = 2048  # a bank of Wormhole has 1 GiB, of Blackhole 4
_OP_MARK = b"Executing operation: "
_DUMP_HEADER = re.compile(rb"MLIR Module (\w+):\s*$")
_DUMP_END = b"END OF MLIR MODULE"
_FRAMEWORK = re.compile(rb"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[.,]\d{3} ")


class _Event(NamedTuple):
    """A line with its value resolved to rows of the timeline."""

    kind: Kind
    number: int = NONE  # call, op type or state
    slot: int = NONE
    text: str = ""
    flags: int = 0


_NOTHING = _Event(Kind.NOTHING)


class _Op(NamedTuple):
    """An op line that was seen before."""

    call: int
    type_class: int  # of its block's op type, see TimelineBuilder.type_class


class _Block(NamedTuple):
    """The lines behind an op line that were seen before: its block, and what follows up to the next op line."""

    op_type: int
    type_class: int
    snapshot: int
    flags: int
    lines: int  # with that of the op, without those of the events
    events: tuple[_Event, ...]


class TTRuntime:
    """The format of tt-mlir's runtime."""

    name = "tt-runtime"
    looked_for = "lines of the tt-mlir runtime such as `RuntimeTTNN | DEBUG | Executing operation: ...`"

    def is_spoken_in(self, sample: bytes) -> bool:
        """Whether any line is the runtime's."""
        lines = (line for line in sample.split(b"\n") if b" | " in line or b"emory state" in line or b"xecut" in line)
        return any(read_line(strip_line(line).text) is not None for line in lines)

    def open_reader(self, *, rank: str = "") -> "RankedReader":
        """Begin a log."""
        return RankedReader(rank=rank)


class RankedReader:
    """Reads a log whose lines may have prefixes; each process of a multi-host run is read apart from the others.

    The processes of one run differ in memory, failures and even graphs, so their lines must never meet. Which of them
    is the lowest is known at the end only, so all are read.
    """

    def __init__(self, *, rank: str = "") -> None:
        self._wanted = rank
        self._readers: dict[str, TTRuntimeReader] = {}
        self._prefixes: Prefixes | None = None
        self._waiting = b""  # the beginning of the log, until a line shows whether there are prefixes
        self._decided = False
        self._splitter = LineSplitter()
        self._line = 0
        self._size_bytes = 0

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes."""
        self._size_bytes += len(chunk)
        if not self._decided:
            self._waiting += chunk
            if len(self._waiting) < _UNDECIDED_BYTES and not has_own_lines(self._waiting):
                return
            self._decided, self._prefixes = True, find_prefixes(self._waiting)
            chunk, self._waiting = self._waiting, b""
        if self._prefixes is None:
            self._reader("").feed(chunk)
        else:
            self._feed_prefixed(chunk, self._prefixes)

    def _feed_prefixed(self, chunk: bytes, prefixes: Prefixes) -> None:
        for raw in self._splitter.lines(chunk):
            self._line += 1
            rank, text = prefixes.strip(raw)
            self._reader(rank).feed_line(text, self._line)

    def _reader(self, rank: str) -> "TTRuntimeReader":
        if rank not in self._readers:
            self._readers[rank] = TTRuntimeReader()
        return self._readers[rank]

    def finish_all(self) -> dict[str, MemoryTimeline]:
        """The timeline of each process, lowest rank first; of the whole log under "" where it has no ranks."""
        if self._waiting:
            self._reader("").feed(self._waiting)
        cut = bool(self._splitter.carry)
        if cut and self._prefixes is not None:
            self._line += 1
            rank, text = self._prefixes.strip(self._splitter.carry)
            self._reader(rank).feed_line(text, self._line)
        found = {rank: reader.finish() for rank, reader in self._readers.items()} or {"": TTRuntimeReader().finish()}
        logging = [rank for rank, one in found.items() if rank and one.evidence.runtime_lines]
        ranks = tuple(sorted(logging, key=rank_order))
        timelines = {}
        for rank in ranks or tuple(found)[:1]:
            evidence = msgspec.structs.replace(found[rank].evidence, ranks=ranks, rank=rank)
            if self._prefixes is not None:
                evidence = msgspec.structs.replace(
                    evidence, lines=self._line, size_bytes=self._size_bytes, ends_mid_line=cut
                )
            timelines[rank] = msgspec.structs.replace(found[rank], evidence=evidence)
        return timelines

    def finish(self) -> MemoryTimeline:
        """The timeline of the requested process, else of the lowest rank."""
        timelines = self.finish_all()
        return timelines.get(self._wanted) or next(iter(timelines.values()))


def rank_order(rank: str) -> tuple[int, ...]:
    """The order of ranks: by their numbers, so that 2 comes before 10."""
    return tuple(int(part) for part in re.findall(r"\d+", rank))


class TTRuntimeReader:
    """Reads the lines of one process; memory grows with ops, not with lines."""

    def __init__(self) -> None:
        self._builder = TimelineBuilder()
        self._ops = OpReader()
        self._dumps = ModuleDumpReader(self._ops)
        self._call_ids: dict[bytes, int] = {}
        self._known: dict[bytes, _Event] = {}
        self._known_bytes = 0
        self._known_ops: dict[bytes, _Op] = {}
        self._known_blocks: dict[bytes, _Block] = {}
        self._piece_bytes = 0
        self._cut = b""  # newline and prefix of every op line, once two of them were equal
        self._last_prefix = b""
        self._never_cut = False
        self._num_known = 0  # pieces found since the last clearing
        self._prefixes: set[bytes] = set()  # of lines that are readings
        self._carry = b""
        self._dropping = False
        self._line = 0  # lines read so far
        self._size_bytes = 0
        self._runtime_lines = self._framework_lines = self._program_lines = 0
        self._num_dumps = self._num_shortened = 0

    # bytes -> pieces and lines

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes."""
        self._size_bytes += len(chunk)
        if self._dropping:
            _, found, chunk = chunk.partition(b"\n")
            if not found:
                return
            self._feed_lines(self._carry)
            self._carry, self._dropping = b"", False
        end = chunk.rfind(b"\n")
        if end >= 0:
            whole = b"".join((self._carry, memoryview(chunk)[:end]))
            self._carry = chunk[end + 1 :]
            self._feed_whole_lines(whole)
        else:
            self._carry += chunk
        if len(self._carry) > LONGEST_LINE_BYTES:
            self._carry, self._dropping = self._carry[:LONGEST_LINE_BYTES], True
            self._num_shortened += 1

    def feed_line(self, line: bytes, number: int) -> None:
        """Take one whole line, with its number in the log."""
        self._size_bytes += len(line) + 1
        self._line = number - 1
        self._take(line)

    def _feed_whole_lines(self, data: bytes) -> None:
        first, *pieces = data.split(self._cut) if self._cut and not self._never_cut else [data]
        self._feed_lines(first)
        if not pieces:
            return
        last = pieces.pop()
        self._feed_pieces(pieces)
        self._feed_lines(self._cut[1:] + last)  # its block may go on in the next chunk

    def _feed_pieces(self, pieces: list[bytes]) -> None:
        op_of, block_of = self._known_ops.get, self._known_blocks.get
        calls: list[int] = []
        found: list[_Block] = []
        for piece in pieces:
            head, _, tail = piece.partition(b"\n")
            op, block = op_of(head), block_of(tail)
            if op is None and block is not None:
                op = self._learn_op(head)
            # places, not names, as this is the innermost loop: type_class of both, then call and events
            if op is not None and block is not None and op[1] == block[1]:
                calls.append(op[0])
                found.append(block)
                if not block[5]:
                    continue
                self._add_rows(calls, found)
                for event in block[5]:
                    self._line += 1
                    self._apply(event)
            else:
                self._add_rows(calls, found)
                self._learn_piece(piece)
        self._add_rows(calls, found)

    def _add_rows(self, calls: list[int], found: list[_Block]) -> None:
        """Add the ops and blocks that were collected, and forget them."""
        if calls:
            op_types, _, snapshots, flags, sizes, _ = zip(*found, strict=True)
            *lines, end = accumulate(sizes, initial=self._line)
            self._runtime_lines += end - self._line
            self._num_known += len(calls)
            rows = Rows(calls, list(op_types), list(snapshots), [line + 1 for line in lines], list(flags))
            self._builder.add_rows(rows)
            self._line = end
            calls.clear()
            found.clear()

    def _learn_op(self, head: bytes) -> _Op | None:
        """Read an op line whose lines behind it are known; None where it is not a whole one."""
        if b"\x1b" in head or len(self._known_ops) * _LIKELY_BYTES > _KNOWN_BYTES:
            return None
        event = self._resolve_op(head.decode(errors="replace").rstrip())
        if event.flags:
            return None
        op = self._known_ops[head] = _Op(event.number, self._builder.type_class_of_call(event.number))
        return op

    def _learn_piece(self, piece: bytes) -> None:
        lines = (self._cut[1:] + piece).split(b"\n")
        row = len(self._builder.call_of)
        events = [self._take(line) for line in lines]
        self._builder.close_block()
        if len(piece) > _LONGEST_PIECE or any(line not in self._known for line in lines):
            return
        self._piece_bytes += len(piece)
        if self._piece_bytes > _KNOWN_BYTES:
            self._never_cut = self._num_known < len(self._known_blocks)  # pieces do not come again: lines may
            self._num_known = 0
            self._known_ops.clear()
            self._known_blocks.clear()
            self._piece_bytes = len(piece)
        self._remember_piece(piece, events, row)

    def _remember_piece(self, piece: bytes, events: list[_Event], row: int) -> None:
        """Remember an op line and the lines behind it, if they are an op with a whole block of its own."""
        builder = self._builder
        kinds = [event.kind for event in events]
        size = 2 + next((at for at, kind in enumerate(kinds[2:]) if kind is not Kind.STATE), len(kinds) - 2)
        is_retained = kinds[size : size + 1] == [Kind.RETAINED]
        if kinds[:2] != [Kind.OP, Kind.BLOCK] or len({event.slot for event in events[2:size]}) < size - 2:
            return  # no block, or a reading stands twice
        if size == 2 or builder.op_type_of[row] != events[1].number:  # noqa: PLR2004 - op line and header
            return  # the block was not this op's
        head, _, tail = piece.partition(b"\n")
        op_type = events[1].number
        self._known_ops[head] = _Op(events[0].number, builder.type_class_of_call(events[0].number))
        self._known_blocks[tail] = _Block(
            op_type=op_type,
            type_class=builder.type_class(builder.op_types[op_type]),
            snapshot=builder.snapshot_of[row],
            flags=int(OpFlag.RETAINED) if is_retained else 0,
            lines=size + is_retained,
            events=tuple(events[size + is_retained :]),
        )

    def _feed_lines(self, data: bytes) -> None:
        for line in data.split(b"\n"):
            self._take(line)

    def _take(self, line: bytes) -> _Event:
        self._line += 1
        if self._dumps.is_open and b" | " not in line and b"END OF" not in line and b"Out of Memory" not in line:
            self._dumps.feed(line)  # only a dump has lines of no form, and it has many
            return _NOTHING
        event = self._known.get(line) or self._learn(line)
        self._apply(event)
        return event

    # a line -> an event

    def _learn(self, raw: bytes) -> _Event:
        """Read a line that was not seen before; one that may come again is remembered, without the time in front."""
        start = stamp_end(raw)
        body = raw[start:] if start else raw
        known = self._known.get(body) if start else None
        if known is not None:
            return known
        reading = find_reading(body)
        if reading is not None and body[: reading.start()] in self._prefixes:
            return self._remember(body, self._resolve_reading(reading))
        text = strip_line(body).text
        line = read_line(text)
        if line is None:
            self._take_foreign(text)
            return _NOTHING
        if reading is not None and len(self._prefixes) < _MOST_PREFIXES:
            self._prefixes.add(body[: reading.start()])
        if line.kind is Kind.NOTHING and self._take_failure(text[:_SHOWN]):
            return _Event(Kind.NOTHING)
        event = self._resolve(line, text)
        if line.kind is Kind.OP and not start:
            self._learn_cut(raw)
        if line.kind is Kind.UNREAD or event.flags & OpFlag.UNREAD:
            return event  # not cached: each occurrence is reported with its own line number
        return self._remember(body, event)

    def _remember(self, raw: bytes, event: _Event) -> _Event:
        self._known_bytes += len(raw)
        if self._known_bytes > _KNOWN_BYTES:
            self._known.clear()
            self._known_bytes = len(raw)
        self._known[raw] = event
        return event

    def _resolve(self, line: Line, text: bytes) -> _Event:
        match line.kind:
            case Kind.OP:
                return self._resolve_op(line.value)
            case Kind.STATE:
                reading = find_reading(text)
                assert reading is not None  # noqa: S101 - the line was just read as one
                return self._resolve_reading(reading)
            case Kind.BLOCK:
                return _Event(Kind.BLOCK, number=self._builder.op_type_id(line.value))
            case Kind.UNREAD:
                return _Event(Kind.UNREAD, text=f"{line.reason}\0{text[:_SHOWN].decode(errors='replace')}")
            case _:
                return _Event(line.kind, text=line.value)

    def _resolve_reading(self, reading: "re.Match[bytes]") -> _Event:
        memory, state = read_state(reading)
        slot = self._builder.slot(memory)
        return _Event(Kind.STATE, number=self._builder.add_state(slot, state), slot=slot)

    def _resolve_op(self, text: str) -> _Event:
        key = blake2b(text.encode(), digest_size=16).digest()
        call = self._ops.read(text)
        if key not in self._call_ids:
            self._call_ids[key] = len(self._builder.calls)
            self._builder.calls.append(call or guess_call(text))
        flags = 0 if call else OpFlag.UNREAD
        return _Event(Kind.OP, number=self._call_ids[key], flags=flags, text="" if call else text[:_SHOWN])

    def _learn_cut(self, raw: bytes) -> None:
        prefix = raw[: raw.find(_OP_MARK) + len(_OP_MARK)]
        if not self._cut and not self._never_cut and prefix == self._last_prefix:
            self._cut = b"\n" + prefix
        self._last_prefix = prefix

    def _take_foreign(self, text: bytes) -> None:
        """A line of another program, or of a module dump."""
        beginning = text[:_SHOWN]
        self._framework_lines += _FRAMEWORK.match(beginning) is not None
        header = _DUMP_HEADER.search(beginning) if b"MLIR Module " in beginning else None
        if header is not None:
            self._num_dumps += 1
            self._dumps.begin(header.group(1).decode())
        elif _DUMP_END in beginning:
            self._dumps.end()
        elif not self._take_failure(beginning) and self._dumps.is_open:
            self._dumps.feed(text)

    def _take_failure(self, text: bytes) -> bool:
        failure = read_failure(text, self._line)
        if failure is not None:
            self._builder.fail(failure)
        return failure is not None

    # an event -> the timeline

    def _apply(self, event: _Event) -> None:
        kind, builder = event.kind, self._builder
        if event is _NOTHING:
            return
        self._runtime_lines += 1
        if kind is Kind.STATE:
            if not builder.read_state(event.slot, event.number):
                builder.add_unread(self._line, "", "a memory reading outside any block")
        elif kind is Kind.OP:
            builder.add_op(event.number, self._line, event.flags)
            if event.flags:
                builder.add_unread(self._line, event.text, "an incomplete op text")
        elif kind is Kind.BLOCK:
            builder.open_op_block(event.number, self._line)
        else:
            self._apply_rare(event)

    def _apply_rare(self, event: _Event) -> None:
        builder = self._builder
        match event.kind:
            case Kind.START | Kind.FINISH | Kind.CALLED_DONE:
                self._apply_program(event)
            case Kind.BEFORE_SUBMIT:
                builder.submit(Moment.BEFORE_SUBMIT, self._line)
            case Kind.AFTER_SUBMIT:
                builder.submit(Moment.AFTER_SUBMIT, self._line)
            case Kind.RETAINED:
                builder.flag_op(OpFlag.RETAINED)
            case Kind.CACHE_KEY:
                builder.name_cache_key(event.text)
            case Kind.CACHE_HIT:
                builder.hit_cache()
            case Kind.CACHE_MISS:
                builder.announce(event.text)
            case Kind.LEFT_OUT:
                builder.skip()
            case Kind.UNREAD:
                reason, _, text = event.text.partition("\0")
                builder.add_unread(self._line, text, reason)
            case _:
                pass

    def _apply_program(self, event: _Event) -> None:
        self._program_lines += event.kind is not Kind.CALLED_DONE
        if event.kind is Kind.CALLED_DONE:
            self._builder.end_const_eval(event.text, self._line)
        elif event.kind is Kind.START:
            self._builder.start(event.text, self._line)
        elif not self._builder.finish(event.text, self._line):
            self._builder.add_unread(self._line, event.text, "the end of a program that never started")

    # the end

    def finish(self) -> MemoryTimeline:
        """The log is over."""
        ends_mid_line = bool(self._carry)
        if self._carry:
            self._feed_lines(self._carry)
        self._dumps.end()
        builder = self._builder
        evidence = Evidence(
            lines=self._line,
            size_bytes=self._size_bytes,
            runtime_lines=self._runtime_lines,
            op_lines=len(builder.call_of) - builder.call_of.count(NONE),
            op_blocks=len(builder.op_type_of) - builder.op_type_of.count(NONE),
            submit_blocks=sum(mark.moment is not Moment.LOOSE for mark in builder.marks),
            program_lines=self._program_lines,
            framework_lines=self._framework_lines,
            module_dumps=self._num_dumps,
            shortened_lines=self._num_shortened,
            ends_mid_line=ends_mid_line,
        )
        return builder.build(
            dialect=TTRuntime.name,
            types=self._ops.types,
            modules=self._dumps.modules,
            evidence=evidence,
            scale=Scale(ticks_per_mib=TICKS_PER_MIB, row_alignment_bytes=self._row_alignment_bytes()),
        )

    def _row_alignment_bytes(self) -> int:
        """What a module dump says; without one, the chip is recognized by the size of its DRAM banks."""
        large = self._builder.largest_capacity("DRAM") > _LARGE_BANK_MIB * TICKS_PER_MIB
        return self._dumps.row_alignment_bytes or (_LARGE_ROW_ALIGNMENT_BYTES if large else _ROW_ALIGNMENT_BYTES)
