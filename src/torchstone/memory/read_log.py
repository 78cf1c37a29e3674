"""A runtime log -> MemoryTimeline in one pass; or a smaller log with only the last complete pass of each graph."""

from collections.abc import Iterable, Iterator
from itertools import chain, islice
from pathlib import Path

import msgspec

from torchstone.errors import InputError, UnreadableFileError
from torchstone.memory.dialects.registry import Dialect, LogReader, dialect_named, dialects
from torchstone.memory.dialects.tt_lines import LEFT_OUT_MESSAGE
from torchstone.memory.dialects.tt_runtime import RankedReader
from torchstone.memory.line_prefixes import Prefixes, find_prefixes
from torchstone.memory.log_source import Progress, read_chunks, read_lines
from torchstone.memory.study import outermost_run
from torchstone.memory.torch_memory import is_torch_file, read_torch_file
from torchstone.memory.ttnn_files import is_ttnn_file, read_ttnn_file
from torchstone.record.base import Record
from torchstone.record.files import encodable
from torchstone.record.memory import NONE, MemoryTimeline, ProgramRun, Role
from torchstone.temporary import replacing

# --- Parsing: one pass, without loading the log into memory ---

_SAMPLE_CHUNKS = 1


def parse_log(
    log: str | Path | Iterable[str | bytes],
    *,
    dialect: str = "",
    rank: str = "",
    progress: Progress | None = None,
) -> MemoryTimeline:
    """Read a log: a path, or its lines. A damaged log gives all that can be read; a log without runtime lines raises.

    A path may also be a graph report of ttnn, the database that ttnn-visualizer reads, a snapshot of PyTorch's CUDA
    allocator, or a trace of torch.profiler with memory events.

    dialect names the log format, detected when omitted; rank selects one process of a multi-host run ("1,0").
    """
    source = encodable(str(log)) if isinstance(log, str | Path) else "the given text"
    if isinstance(log, str | Path) and not dialect and Path(log).is_file():
        if is_ttnn_file(Path(log)):
            return read_ttnn_file(Path(log))
        if is_torch_file(Path(log)):
            return read_torch_file(Path(log))
    chosen, reader = _fed_reader(log, dialect=dialect, rank=rank, progress=progress)
    timeline = reader.finish()
    if rank and rank not in timeline.evidence.ranks:
        found = ", ".join(timeline.evidence.ranks) or "none"
        msg = f"{source} has no lines of rank {rank}; its ranks are: {found}"
        raise InputError(msg)
    if timeline.evidence.runtime_lines == 0:
        msg = f"{source} has no runtime lines: looked for {chosen.looked_for}; {_why_empty(timeline)}"
        raise InputError(msg)
    return msgspec.structs.replace(timeline, source=source)


def parse_ranks(
    log: str | Path | Iterable[str | bytes], *, dialect: str = "", progress: Progress | None = None
) -> dict[str, MemoryTimeline]:
    """Read every process of a multi-host log in one pass, lowest rank first; under "" where the log has no ranks."""
    source = encodable(str(log)) if isinstance(log, str | Path) else "the given text"
    chosen, reader = _fed_reader(log, dialect=dialect, rank="", progress=progress)
    found = reader.finish_all() if isinstance(reader, RankedReader) else {"": reader.finish()}
    if all(timeline.evidence.runtime_lines == 0 for timeline in found.values()):
        msg = f"{source} has no runtime lines: looked for {chosen.looked_for}"
        raise InputError(msg)
    return {rank: msgspec.structs.replace(timeline, source=source) for rank, timeline in found.items()}


def _fed_reader(
    log: str | Path | Iterable[str | bytes], *, dialect: str, rank: str, progress: Progress | None
) -> tuple[Dialect, LogReader]:
    chunks = read_chunks(Path(log), progress) if isinstance(log, str | Path) else _line_chunks(log)
    sample = list(islice(chunks, _SAMPLE_CHUNKS))
    chosen = dialect_named(dialect) if dialect else _detect_dialect(b"".join(sample))
    reader = chosen.open_reader(rank=rank)
    for chunk in chain(sample, chunks):
        reader.feed(chunk)
    return chosen, reader


def _detect_dialect(sample: bytes) -> Dialect:
    """The first format found in the sample; the built-in one if a log starts with megabytes of other output."""
    return next((one for one in dialects() if one.is_spoken_in(sample)), None) or next(dialects())


def _why_empty(timeline: MemoryTimeline) -> str:
    if timeline.evidence.framework_lines:
        return (
            "the framework logged but the runtime did not: build it with -DTT_RUNTIME_DEBUG=ON and set "
            "TTMLIR_RUNTIME_LOGGER_LEVEL=DEBUG"
        )
    return "capture the log with `torchstone memory run SCRIPT`, which sets the variables it needs"


def _line_chunks(lines: Iterable[str | bytes]) -> Iterator[bytes]:
    iterator = iter(lines)
    while batch := list(islice(iterator, 10_000)):
        yield b"".join(_as_line(line) for line in batch)


def _as_line(line: str | bytes) -> bytes:
    text = line.encode() if isinstance(line, str) else line
    return text if text.endswith(b"\n") else text + b"\n"


# --- A smaller log with the last complete pass of each graph; the original is not changed ---
#
# Const-eval programs run in the first pass only, so they are copied from there: without them the weights have no sizes.
# A marker line separates parts that are not adjacent in the log, and no effect is computed across it.


_CAPTURE = "capture_trace"
_NOTICE = f"{'Always':>23} | {'INFO':>8} | {LEFT_OUT_MESSAGE}\n".encode()


class Part(Record, frozen=True, kw_only=True):
    """Lines of the log that are copied."""

    first_line: int
    last_line: int
    what: str
    graph: int
    waits: bool = False  # a const-eval: it is written right before the pass of its graph


class LastRun(Record, frozen=True, kw_only=True):
    """The lines of the last run."""

    parts: tuple[Part, ...]
    graphs: int
    notes: tuple[str, ...] = ()


def choose_last_run(timeline: MemoryTimeline) -> LastRun:
    """The last complete pass of each graph, with the const-evals it relies on."""
    programs = timeline.programs
    chosen: list[Part] = []
    notes = []
    for number, graph in enumerate(timeline.graphs):
        run = _pick_run(timeline, graph.runs)
        if not programs[run].complete:
            notes.append(f"graph {number} has no complete pass; its last, incomplete one is copied")
        newest = {
            one.name: row
            for row, one in enumerate(programs)
            if one.role is Role.CONST_EVAL and one.graph == number and one.complete
        }
        outside = (row for row in newest.values() if outermost_run(programs, row) != run)
        chosen += [_part(programs[row], f"const-eval of graph {number}", waits=True) for row in outside]
        chosen.append(_part(programs[run], f"pass {programs[run].pass_index}, graph {number}"))
    failed = _failed_run(timeline)
    if failed is not None and all(part.first_line != failed.first_line for part in chosen):
        chosen.append(_part(failed, f"pass {failed.pass_index}, which failed"))
    if not chosen:
        msg = f"{timeline.source} has no program lines, so no last run; set TTMLIR_RUNTIME_LOGGER_LEVEL=DEBUG"
        raise InputError(msg)
    return LastRun(parts=tuple(chosen), graphs=len(timeline.graphs), notes=tuple(notes))


def _pick_run(timeline: MemoryTimeline, runs: tuple[int, ...]) -> int:
    """The last complete run; with traces, the one that captured, as replays show no ops."""
    programs = timeline.programs
    complete = [run for run in runs if programs[run].complete]
    capturing = {outermost_run(programs, number) for number, one in enumerate(programs) if _CAPTURE in one.name}
    captured = [run for run in complete if run in capturing]
    return (captured or complete or list(runs))[-1]


def _failed_run(timeline: MemoryTimeline) -> ProgramRun | None:
    op = timeline.failures[-1].op if timeline.failures else NONE
    if op == NONE:
        return None
    return timeline.programs[outermost_run(timeline.programs, timeline.ops.programs.values()[op])]


def _part(run: ProgramRun, what: str, *, waits: bool = False) -> Part:
    return Part(first_line=run.first_line, last_line=run.last_line, what=what, graph=run.graph, waits=waits)


def write_last_run(log: Path, last: LastRun, target: Path, *, rank: str = "") -> int:
    """Copy the chosen lines of one process; returns the number of lines written."""
    if target.exists() and target.samefile(log):
        msg = f"{target} is the log itself; choose another file with --output"
        raise InputError(msg)
    written = 0
    try:
        with replacing(target) as file:
            for line in select_lines(_lines_of(log, rank), last):
                file.write(line)
                written += 1
    except OSError as error:
        msg = f"cannot copy {log} to {target}: {error.strerror or error}"
        raise UnreadableFileError(msg) from error
    return written


def _lines_of(log: Path, rank: str) -> Iterator[bytes]:
    """The lines of a log without prefixes; those of other processes are empty, so that line numbers stay."""
    sample = b"".join(islice(read_chunks(log), _SAMPLE_CHUNKS))
    prefixes: Prefixes | None = find_prefixes(sample)
    for line in read_lines(log):
        if prefixes is None:
            yield line
            continue
        found, text = prefixes.strip(line.rstrip(b"\n"))
        yield text + b"\n" if found == rank else b""


def select_lines(lines: Iterable[bytes], last: LastRun) -> Iterator[bytes]:
    """The lines of all dumps and of the parts, the const-evals of a graph right before its pass."""
    parts = sorted(last.parts, key=lambda part: part.first_line)
    waiting: dict[int, list[bytes]] = {}
    announcement: list[bytes] = []
    in_dump = False
    current = 0
    for number, raw in enumerate(lines, start=1):
        if not raw:
            continue  # of another process
        line = raw if raw.endswith(b"\n") else raw + b"\n"
        while current < len(parts) and number > parts[current].last_line:
            current += 1
        part = parts[current] if current < len(parts) and parts[current].first_line <= number else None
        in_dump = in_dump or b"| MLIR Module " in line
        if part is not None:
            begins = number == part.first_line
            kept = [_NOTICE, *announcement, line] if begins and part.waits else [_NOTICE, line] if begins else [line]
            if part.waits:
                waiting.setdefault(part.graph, []).extend(kept)
            else:
                yield from waiting.pop(part.graph, []) if begins else ()
                yield from kept
        elif in_dump:
            yield line
        announcement = [*announcement, line] if _announces(line) else []
        in_dump = in_dump and b"END OF MLIR MODULE" not in line
    for left in waiting.values():
        yield from left


def _announces(line: bytes) -> bool:
    """Whether a line announces the const-eval that follows."""
    return b"Cache miss or invalid cache for function: " in line or b"Running LoadCachedOp for function " in line
