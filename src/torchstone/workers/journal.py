"""Results -> one line each in a file, on disk the moment they exist; and back, after whatever happened in between.

This is how every run resumes. A command opens a ResultJournal, asks it for each key whether an earlier run has the
result, and keeps each new result before anything else happens with it. A key must stand for the whole of what was
asked: a changed question needs another key.

A line is handed to the system in one write before append returns, so that the end of this process, also by kill -9,
loses nothing. Against a power failure the file is synced at most once a second: what came in the last second may be
lost then, never more, and never a part of a line.

Each line has a checksum of its text and of all lines before it. A byte that a disk, a copy or an editor changed, and a
line that is missing, repeated or moved, are therefore found before a result is taken over. A journal of version 1 has
no checksums; the lines that are added to it have.
"""

import contextlib
import fcntl
import json
import os
import re
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

import msgspec

from torchstone.errors import InputError, UnreadableFileError
from torchstone.record.base import Record
from torchstone.record.codec import read_version
from torchstone.record.files import open_regular, problem_of, require_regular_file, shortened

SYNC_S = 1.0
_BLOCK_BYTES = 1 << 16
_LONGEST_LINE = 64 << 20
_KIND, _VERSION = "journal", 2
_HEAD = json.dumps({"schema": f"torchstone/{_KIND}/{_VERSION}"}).encode() + b"\n"
_SUM = re.compile(rb'\{"crc32":"([0-9a-f]{8})",')
_FIRST_WITH_SUMS = 2

R = TypeVar("R", bound=Record)


class Journal:
    """Appends documents under keys; one process at a time."""

    def __init__(self, path: Path) -> None:
        """Open a journal to append to; half a last line, left by a process that was killed, is cut off."""
        path.parent.mkdir(parents=True, exist_ok=True)
        require_regular_file(path)
        self._path = path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        with contextlib.ExitStack() as unless_done:
            unless_done.callback(os.close, self._file)
            self._lock()
            self.found, self._sum = _entries(path)
            self._size = _whole_bytes(self._file)
            os.ftruncate(self._file, self._size)
            if self._size == 0:
                self._write(_HEAD)
            os.fsync(self._file)
            unless_done.pop_all()
        self._synced_s = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def append(self, key: str, document: dict[str, Any]) -> None:
        """Keep a document; a later one under the same key takes its place."""
        body = json.dumps({"key": key, "document": document}, allow_nan=False, separators=(",", ":")).encode()
        found = zlib.crc32(body, self._sum)
        self._write(b'{"crc32":"%08x",' % found + body[1:] + b"\n")
        self._sum = found
        now_s = time.monotonic()
        if now_s - self._synced_s >= SYNC_S:
            os.fsync(self._file)
            self._synced_s = now_s

    def close(self) -> None:
        """Sync and close."""
        os.fsync(self._file)
        os.close(self._file)

    @staticmethod
    def read(path: Path) -> dict[str, dict[str, Any]]:
        """The last document under each key, in the order of the first; nothing where there is no journal."""
        return _entries(path)[0]

    def _write(self, line: bytes) -> None:
        try:
            written = os.write(self._file, line)
            error = "no space left on the disk"
        except OSError as refusal:
            written, error = 0, refusal.strerror or str(refusal)
        if written != len(line):  # leave no half line for the next one to be glued to
            os.ftruncate(self._file, self._size)
            msg = f"cannot write to {self._path}: {error}"
            raise InputError(msg)
        self._size += written

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            msg = f"another run is writing to {self._path}; wait for it, or give another folder"
            raise InputError(msg) from error


class ResultJournal(Generic[R]):
    """The results of a run by key: those of earlier runs of the same journal, and new ones, kept as they come."""

    def __init__(self, path: Path, kind: type[R]) -> None:
        self._journal = Journal(path)
        self._known = self._journal.found
        self._path = path
        self._kind = kind

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def __contains__(self, key: str) -> bool:
        return key in self._known

    def find(self, key: str) -> R | None:
        """The result under a key; None where no run got that far."""
        document = self._known.get(key)
        return None if document is None else _converted(document, self._kind, key, self._path)

    def keep(self, key: str, result: R) -> None:
        """Write a result down; when this returns, the end of the process cannot lose it."""
        document = msgspec.to_builtins(result)
        self._journal.append(key, document)
        self._known[key] = document

    def close(self) -> None:
        """Sync and close."""
        self._journal.close()


def read_results(path: Path, kind: type[R]) -> dict[str, R]:
    """The last result under each key, without opening the journal to write; nothing where there is none."""
    return {key: _converted(document, kind, key, path) for key, document in Journal.read(path).items()}


def _converted(document: dict[str, Any], kind: type[R], key: str, path: Path) -> R:
    try:
        return msgspec.convert(document, kind)
    except (msgspec.ValidationError, OverflowError) as error:
        msg = f"the result of {key[:80]!r} in {path} is not one ({shortened(error)}); move the file away to begin anew"
        raise UnreadableFileError(msg) from error


def _entries(path: Path) -> tuple[dict[str, dict[str, Any]], int]:
    """The last document under each key, in the order of the first, and the checksum of all lines."""
    found: dict[str, dict[str, Any]] = {}
    before = 0
    lines = _lines(path)
    version = _read_head(next(lines, b""), path)
    for number, line in enumerate(lines, start=2):
        if not line.endswith(b"\n"):
            break
        body, expected = line[:-1], None
        if (match := _SUM.match(line)) is not None:
            body, expected = b"{" + body[match.end() :], int(match[1], 16)
        if expected is not None or version >= _FIRST_WITH_SUMS:
            before = zlib.crc32(body, before)
            if expected != before:
                msg = (
                    f"line {number} of {path} is damaged, or a line before it was removed, repeated or moved "
                    f"(its checksum differs); move the file away to begin anew"
                )
                raise UnreadableFileError(msg)
        entry = _decoded(body, path, number)
        key, document = entry.get("key"), entry.get("document")
        if not isinstance(key, str) or not isinstance(document, dict):
            msg = f"line {number} of {path} is not one of a journal; move the file away to begin anew"
            raise UnreadableFileError(msg)
        found[key] = document
    return found, before


def _lines(path: Path) -> Iterator[bytes]:
    """The lines of a journal, none where the file is missing; a disk may give a file of zeros, which is one line."""
    try:
        with open_regular(path) as file:
            while line := file.readline(_LONGEST_LINE):
                if len(line) == _LONGEST_LINE:
                    msg = f"{path} has a line that is too long for a journal; move the file away to begin anew"
                    raise UnreadableFileError(msg)
                yield line
    except FileNotFoundError:
        return
    except OSError as error:
        msg = f"cannot read {path}: {error.strerror or error}"
        raise UnreadableFileError(msg) from error


def _read_head(first: bytes, path: Path) -> int:
    """The version of a journal; a file that is not one is refused: it must not be cut, and cannot be read."""
    if _HEAD.startswith(first):  # the beginning of the head was left by a process that was killed at once
        return _VERSION
    return read_version(str(_decoded(first, path, 1).get("schema", "")), _KIND, newest=_VERSION, origin=str(path))


def _whole_bytes(file: int) -> int:
    """How much of a file is whole lines."""
    end = os.fstat(file).st_size
    while end > 0:
        start = max(0, end - _BLOCK_BYTES)
        last = os.pread(file, end - start, start).rfind(b"\n")
        if last >= 0:
            return start + last + 1
        end = start
    return 0


def _decoded(line: bytes, path: Path, number: int) -> dict[str, Any]:
    try:
        document = json.loads(line)
    except (ValueError, RecursionError) as error:
        msg = f"line {number} of {path} is damaged ({shortened(error)}); move the file away to begin anew"
        raise UnreadableFileError(msg) from error
    if not isinstance(document, dict) or problem_of(line):
        msg = f"line {number} of {path} is not one of a journal; move the file away to begin anew"
        raise UnreadableFileError(msg)
    return document
