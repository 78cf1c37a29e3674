"""A runtime log -> MemoryTimeline, in one pass and without holding the log."""

from collections.abc import Callable, Iterable, Iterator
from gzip import GzipFile
from itertools import chain, islice
from pathlib import Path
from typing import BinaryIO

import msgspec

from torchstone.errors import InputError, UnreadableFileError
from torchstone.memory.dialects.registry import Dialect, dialect_named, dialects
from torchstone.record.memory import MemoryTimeline

Progress = Callable[[int], None]  # told how many bytes of the file were read so far

_CHUNK_BYTES = 1 << 20
_SAMPLE_CHUNKS = 4
_GZIP_MAGIC = b"\x1f\x8b"


def parse_log(
    log: str | Path | Iterable[str | bytes],
    *,
    dialect: str = "",
    rank: str = "",
    progress: Progress | None = None,
) -> MemoryTimeline:
    """Read a log: a path, or its lines. A damaged log gives all that can be read; one with nothing to read is an error.

    dialect names the log format, found from the log when left out; rank picks one process of a multi-host run ("1,0").
    """
    source = str(log) if isinstance(log, str | Path) else "the lines given"
    chunks = _file_chunks(Path(log), progress) if isinstance(log, str | Path) else _line_chunks(log)
    sample = list(islice(chunks, _SAMPLE_CHUNKS))
    spoken = dialect_named(dialect) if dialect else _spoken_dialect(b"".join(sample))
    reader = spoken.open_reader(rank=rank)
    for chunk in chain(sample, chunks):
        reader.feed(chunk)
    timeline = reader.finish()
    if rank and rank not in timeline.evidence.ranks:
        found = ", ".join(timeline.evidence.ranks) or "none"
        msg = f"{source} has no lines of rank {rank}; ranks in it: {found}"
        raise InputError(msg)
    if timeline.evidence.runtime_lines == 0:
        msg = f"{source} holds no runtime lines: looked for {spoken.looked_for}; {_why_empty(timeline)}"
        raise InputError(msg)
    return msgspec.structs.replace(timeline, source=source)


def _spoken_dialect(sample: bytes) -> Dialect:
    """The first format found in the sample; the built-in one if a log begins with megabytes of other output."""
    return next((one for one in dialects() if one.is_spoken_in(sample)), None) or next(dialects())


def _why_empty(timeline: MemoryTimeline) -> str:
    if timeline.evidence.framework_lines:
        return (
            "the framework spoke but not the runtime, so the runtime is built without -DTT_RUNTIME_DEBUG=ON or "
            "TTMLIR_RUNTIME_LOGGER_LEVEL=DEBUG is not set"
        )
    return "capture the log with `torchstone memory run SCRIPT`, which sets the variables it needs"


def unpacked(file: BinaryIO) -> BinaryIO | GzipFile:
    """A log as it was before it was packed, if it was."""
    packed = file.read(2) == _GZIP_MAGIC
    file.seek(0)
    return GzipFile(fileobj=file) if packed else file


def _file_chunks(path: Path, progress: Progress | None) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            stream = unpacked(file)
            while chunk := stream.read(_CHUNK_BYTES):
                yield chunk
                if progress is not None:
                    progress(file.tell())
    except (OSError, EOFError) as error:
        msg = f"cannot read {path}: {getattr(error, 'strerror', None) or error}"
        raise UnreadableFileError(msg) from error


def _line_chunks(lines: Iterable[str | bytes]) -> Iterator[bytes]:
    iterator = iter(lines)
    while batch := list(islice(iterator, 10_000)):
        yield b"".join(_as_line(line) for line in batch)


def _as_line(line: str | bytes) -> bytes:
    text = line.encode() if isinstance(line, str) else line
    return text if text.endswith(b"\n") else text + b"\n"
