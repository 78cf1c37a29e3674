"""A log file as it was found, compressed or in another encoding -> chunks of its text in bytes.

Compressed files that break off give all that can be decompressed: a log that is cut is still a log.
"""

import codecs
import errno
import gzip
import lzma
import os
import shutil
import subprocess
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import IO, BinaryIO, cast

from torchstone.errors import InputError, UnreadableFileError
from torchstone.record.files import open_regular

Progress = Callable[[int], None]  # called with the number of bytes read so far

CHUNK_BYTES = 1 << 22
LONGEST_LINE_BYTES = 8 << 20  # of a line; the rest of it is not kept
MAX_RATIO = 400  # of unpacked to compressed bytes, beyond
_MAX_UNPACKED_BYTES = 1 << 28
_SAMPLE_BYTES = 1 << 12
_MOSTLY = 0.8
_GZIP, _XZ, _ZSTD = b"\x1f\x8b", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd"
_UTF16 = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}


def read_chunks(path: Path, progress: Progress | None = None) -> Iterator[bytes]:
    """The text of a log, decompressed and as UTF-8, a few megabytes at a time; raises UnreadableFileError."""
    try:
        with open_regular(path) as file, _decompressed(file, path) as stream:
            yield from _recoded(_bounded(_readable(stream, file, progress), file, path))
    except (OSError, lzma.LZMAError) as error:
        msg = f"cannot read {path}: {getattr(error, 'strerror', None) or error}"
        raise UnreadableFileError(msg) from error


def _bounded(chunks: Iterator[bytes], file: BinaryIO, path: Path) -> Iterator[bytes]:
    """The chunks of a log, up to where no log compresses so well: a small file could unpack for hours."""
    size_bytes, packed_bytes = 0, os.fstat(file.fileno()).st_size
    for chunk in chunks:
        size_bytes += len(chunk)
        if size_bytes > _MAX_UNPACKED_BYTES and size_bytes > MAX_RATIO * packed_bytes:
            msg = f"{path} unpacks to more than {MAX_RATIO} times its size, which no log does; decompress it yourself"
            raise UnreadableFileError(msg)
        yield chunk


def read_lines(path: Path) -> Iterator[bytes]:
    """The lines of a log, each with its end."""
    splitter = LineSplitter()
    for chunk in read_chunks(path):
        yield from (line + b"\n" for line in splitter.lines(chunk))
    if splitter.carry:
        yield splitter.carry


class LineSplitter:
    """Chunks of a log -> its lines, each up to the longest that is kept: a file of zeros is one line without an end."""

    def __init__(self) -> None:
        self.carry = b""  # the last line, as far as it was read
        self._dropping = False

    def lines(self, chunk: bytes) -> list[bytes]:
        """The lines that end in the next chunk, without their ends."""
        if self._dropping:
            _, end, rest = chunk.partition(b"\n")
            if not end:
                return []
            self._dropping, chunk = False, end + rest
        *lines, self.carry = (self.carry + chunk).split(b"\n")
        if len(self.carry) > LONGEST_LINE_BYTES:
            self._dropping, self.carry = True, self.carry[:LONGEST_LINE_BYTES]
        return lines


@contextmanager
def _decompressed(file: BufferedReader, path: Path) -> Iterator[IO[bytes]]:
    start = file.peek(6)[:6]
    if start.startswith(_GZIP):
        with gzip.open(file) as stream:
            yield cast("IO[bytes]", stream)
    elif start == _XZ:
        with lzma.open(file) as unpacked:
            yield unpacked
    elif start.startswith(_ZSTD):
        with _zstd(path) as piped:
            yield piped
    else:
        yield file


@contextmanager
def _zstd(path: Path) -> Iterator[IO[bytes]]:
    """Decompress by the `zstd` program: Python has no decompressor of its own for it."""
    program = shutil.which("zstd")
    if program is None:
        msg = f"{path} is compressed with zstd, and there is no `zstd` program; install it, or decompress the file"
        raise InputError(msg)
    command = [program, "--decompress", "--stdout", "--quiet", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:  # noqa: S603 - reads a file
        assert child.stdout is not None  # noqa: S101 - it is a pipe
        yield child.stdout


def _readable(stream: IO[bytes], file: BinaryIO, progress: Progress | None) -> Iterator[bytes]:
    """All chunks up to the place where a compressed file breaks off."""
    # read1 gives what was decompressed so far, where read would lose it at the place where the file breaks off
    read: Callable[[int], bytes] = getattr(stream, "read1", stream.read)
    pending, done_bytes, zero_bytes = bytearray(), 0, 0
    failure: Exception | None = None
    while failure is None:
        try:
            part = read(CHUNK_BYTES)
        except (EOFError, zlib.error, lzma.LZMAError, OSError) as error:
            failure, part = error, b""
        if stream is file and part:
            yield part
            zero_bytes = zero_bytes + len(part) if part.count(0) == len(part) else 0
            if zero_bytes > 2 * LONGEST_LINE_BYTES:  # as much in UTF-16, too
                _skip_hole(file)
            if progress is not None:
                progress(file.tell())
            continue
        pending += part
        if len(pending) >= CHUNK_BYTES or (pending and not part):
            done_bytes += len(pending)
            yield bytes(pending)
            pending.clear()
            if progress is not None:
                progress(file.tell())
        if not part:
            break
    if failure is not None and (done_bytes == 0 or stream is file):
        raise OSError(None, f"nothing in it can be decompressed ({failure})") from failure


def _skip_hole(file: BinaryIO) -> None:
    """Go on where a sparse file has data again; its zeros before that belong to a line that is cut already.

    A log that another program truncates while it is written begins with a hole of the size that it had.
    """
    if not hasattr(os, "SEEK_DATA"):
        return
    begin = file.tell()
    try:
        data = file.seek(begin, os.SEEK_DATA)
    except OSError as error:  # ENXIO: nothing but the hole follows; else the file system knows no holes
        data = os.fstat(file.fileno()).st_size if error.errno == errno.ENXIO else begin
    file.seek(begin + max(0, data - begin) // 2 * 2)  # by whole characters of UTF-16


def _recoded(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """UTF-16, which Windows terminals write, as UTF-8."""
    first = next(chunks, b"")
    encoding = _UTF16.get(first[:2])
    if encoding is None and (encoding := _utf16_without_mark(first[:_SAMPLE_BYTES])) is not None:
        first = b"\xff\xfe" + first  # the place of the mark
    if encoding is None:
        yield first.removeprefix(b"\xef\xbb\xbf")
        yield from chunks
        return
    decoder = codecs.getincrementaldecoder(encoding)(errors="replace")
    yield decoder.decode(first[2:]).encode()
    for chunk in chunks:
        yield decoder.decode(chunk).encode()


def _utf16_without_mark(sample: bytes) -> str | None:
    """UTF-16 that does not say so: every other byte of English text is zero, and only that."""
    for start, encoding in ((1, "utf-16-le"), (0, "utf-16-be")):
        half, other = sample[start::2], sample[1 - start :: 2]
        if half and half.count(0) > _MOSTLY * len(half) and other.count(0) < _MOSTLY * len(other):
            return encoding
    return None
