"""Files that others wrote, read within limits: regular files alone, bounded in size and in depth of nesting.

Whatever a file contains, these functions return its content or raise UnreadableFileError with one sentence. They never
wait for a pipe, read a device without end, or unpack more than they were asked for.
"""

import gzip
import io
import json
import os
import re
import stat
import zlib
from collections.abc import Callable
from fnmatch import fnmatchcase
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchstone.errors import UnreadableFileError
from torchstone.units import show_bytes

if TYPE_CHECKING:
    from zipfile import ZipFile

MAX_FILE_BYTES = 512 << 20  # of a document that is read as a whole, as it is or unpacked
MAX_DEPTH = 200  # of lists and objects in each other
MAX_DIGITS = 310  # of a number: the largest float, which some tools write as a whole number, has 309
_GZIP = b"\x1f\x8b"
_ESCAPE = re.compile(rb"\\.", re.DOTALL)
_TEXT = re.compile(rb'"[^"]*"')
_NOT_STRUCTURE = bytes(set(range(256)) - set(b'[]{}"'))
_SURROGATE = re.compile(r"[\ud800-\udfff]|\\u[dD][89a-fA-F]")
_DIGITS = bytes(48 if chr(code).isdecimal() else 32 for code in range(128)) + b" " * 128  # a digit -> 0, else a space
_LONG = b"0" * (MAX_DIGITS + 1)
_UNSIZED_BYTES = 1 << 24
_MOST_DOTS = 1_000  # in a line of TOML: the time of its reader grows with the square of the parts of a key
_TOML_BITS = 63  # beside the sign; Python's reader takes any number
_PART_BYTES = 1 << 20
_STORED, _DEFLATED = 0, 8  # methods of zip archives
_SHOWN_CHARACTERS = 200  # of an error that a decoder reports


def require_regular_file(path: Path) -> None:
    """Refuse a pipe, socket or device, which may wait for ever or never end; a file that is missing is not refused."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:  # ValueError: a null byte in the name
        msg = f"cannot read {path}: {_reason(error)}"
        raise UnreadableFileError(msg) from error
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):  # opening a folder fails with a sentence of its own
        msg = f"{path} is not a regular file; write its content to one and give that"
        raise UnreadableFileError(msg)


def open_regular(path: Path) -> io.BufferedReader:
    """Open a regular file to read; another process may put a pipe in its place at any time, which is not waited for.

    Raises UnreadableFileError for what is not a regular file, and OSError as `open` does.
    """
    require_regular_file(path)
    file: io.BufferedReader = io.BufferedReader(
        io.FileIO(path, opener=_without_waiting if os.name == "posix" else None)
    )
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        return file
    file.close()
    msg = f"{path} is not a regular file any more; write its content to one and give that"
    raise UnreadableFileError(msg)


def _without_waiting(name: str, flags: int) -> int:
    return os.open(name, flags | os.O_NONBLOCK | os.O_NOCTTY)


def matching(folder: Path, pattern: str) -> list[Path]:
    """The paths below a folder that match a pattern, sorted; a folder that is not there has none.

    Path.glob takes a folder that may not be listed for an empty one; this raises UnreadableFileError.
    """
    found = [folder]
    for part in pattern.split("/"):
        found = [one for place in found if place.is_dir() for one in _listed(place) if fnmatchcase(one.name, part)]
    return sorted(found)


def _listed(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError as error:
        msg = f"cannot list {folder}: {error.strerror or error}"
        raise UnreadableFileError(msg) from error


def all_files_below(folder: Path) -> list[Path]:
    """The files below a folder, sorted; raises UnreadableFileError where one of its folders cannot be listed."""
    found: list[Path] = []
    pending = [folder]
    while pending:
        entries = _listed(pending.pop())
        pending += [one for one in entries if one.is_dir() and not one.is_symlink()]
        found += [one for one in entries if one.is_file()]
    return sorted(found)


def read_file(path: Path, *, most_bytes: int = MAX_FILE_BYTES) -> bytes:
    """The content of a regular file that is not larger than the limit."""
    try:
        with open_regular(path) as file:
            size_bytes = os.fstat(file.fileno()).st_size  # 0 for the files of /proc, whatever they contain
            content = file.read(size_bytes + 1 if size_bytes else _UNSIZED_BYTES) if size_bytes <= most_bytes else None
    except (OSError, ValueError) as error:
        msg = f"cannot read {path}: {_reason(error)}"
        raise UnreadableFileError(msg) from error
    if content is None or len(content) > most_bytes:
        msg = f"{path} is larger than {show_bytes(most_bytes)}, which is the limit for one file; split it"
        raise UnreadableFileError(msg)
    return content


def read_text(path: Path) -> str:
    """The content of a text file in UTF-8."""
    try:
        return read_file(path).decode("utf-8")
    except UnicodeDecodeError as error:
        msg = f"{path} is not UTF-8 text ({error.reason} at byte {error.start}); save it as UTF-8"
        raise UnreadableFileError(msg) from error


def read_unpacked(path: Path, *, most_bytes: int = MAX_FILE_BYTES) -> bytes:
    """The content of a file, decompressed where it is a gzip file."""
    content = read_file(path, most_bytes=most_bytes)
    if not content.startswith(_GZIP):
        return content
    try:
        with gzip.open(io.BytesIO(content)) as stream:
            unpacked = read_most(stream, most_bytes + 1)
    except (OSError, EOFError, zlib.error) as error:
        msg = f"cannot read {path}: {_reason(error)}"
        raise UnreadableFileError(msg) from error
    if len(unpacked) > most_bytes:
        msg = f"{path} unpacks to more than {show_bytes(most_bytes)}, which is the limit for one file; split it"
        raise UnreadableFileError(msg)
    return unpacked


def read_most(stream: io.BufferedIOBase, most_bytes: int) -> bytes:
    """What a stream has, up to a limit; `read` with the limit itself would allocate all of it at once."""
    parts = []
    while most_bytes > 0 and (part := stream.read(min(most_bytes, _PART_BYTES))):
        parts.append(part)
        most_bytes -= len(part)
    return b"".join(parts)


def problem_of(text: bytes) -> str:
    """Why a JSON text is beyond the limits; "" where it is within them.

    Recursive code that walks over a document relies on the depth, and arithmetic with floats on the digits. Each round
    removes the innermost brackets, so the time is that of a few searches through the text; brackets that do not match
    count as too deep, and are an error anyway.
    """
    plain = _ESCAPE.sub(b"", text) if b"\\" in text else text
    # Two quotes in a row are an empty text, or two texts that become one: either way the rest stays inside or outside.
    brackets = plain.translate(None, _NOT_STRUCTURE).replace(b'""', b"")
    brackets = _TEXT.sub(b"", brackets) if b'"' in brackets else brackets
    for _ in range(MAX_DEPTH):
        if not brackets:
            break
        brackets = brackets.replace(b"[]", b"").replace(b"{}", b"")
    if brackets:
        return f"it nests lists and objects more than {MAX_DEPTH} levels deep"
    if _LONG in text.translate(_DIGITS) and _LONG in _TEXT.sub(b"", plain).translate(_DIGITS):
        return f"it has a number of more than {MAX_DIGITS} digits"
    return ""


def parse_json(text: bytes | str, *, origin: str, object_hook: Callable[[dict[str, Any]], object] | None = None) -> Any:
    """A JSON document of another tool as plain values; origin names it in the error."""
    try:
        content = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
        document = json.loads(text, object_hook=object_hook)
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError and numbers with too many digits, too
        msg = f"{origin} is not valid JSON ({shortened(error)}); make it again"
        raise UnreadableFileError(msg) from error
    if problem := problem_of(content):
        msg = f"{origin} is not read: {problem}"
        raise UnreadableFileError(msg)
    return storable(document, content.decode("utf-8", "replace"))


def storable(document: Any, text: str) -> Any:
    """A document whose texts can be encoded: lone surrogates, which JSON allows, become escape sequences."""
    return encodable(document) if _SURROGATE.search(text) else document


def encodable(document: Any) -> Any:
    """The same document, each half of a character written out: the name of a file need not be UTF-8 either."""
    match document:
        case str():
            return document.encode("utf-8", "backslashreplace").decode()
        case list() | tuple():  # msgspec leaves tuples as they are
            return [encodable(part) for part in document]
        case dict():
            return {encodable(key): encodable(part) for key, part in document.items()}
        case _:
            return document


def read_json(path: Path, *, object_hook: Callable[[dict[str, Any]], object] | None = None) -> Any:
    """A JSON file of another tool as plain values."""
    return parse_json(read_file(path), origin=str(path), object_hook=object_hook)


def parse_toml(text: str, *, origin: str) -> dict[str, Any]:
    """A TOML document as plain values; origin names it in the error."""
    import tomllib  # most commands read none

    document: dict[str, Any] = {}
    if any(line.count(".") > _MOST_DOTS for line in text.splitlines()):
        problem = f"a line has more than {_MOST_DOTS:,} dots"
    else:
        try:
            document = tomllib.loads(text)
            problem = _problem_of_values(document)
        except (ValueError, RecursionError) as error:  # a number with too many digits is no TOMLDecodeError
            problem = shortened(error)
    if problem:
        msg = f"{origin} is not a TOML file: {problem}"
        raise UnreadableFileError(msg)
    return document


def _problem_of_values(document: dict[str, Any]) -> str:
    level: list[Any] = [document]
    for _ in range(MAX_DEPTH):
        if any(isinstance(one, int) and one.bit_length() > _TOML_BITS for one in level):
            return f"it has a number of more than {_TOML_BITS} bits"
        inner = (one.values() if isinstance(one, dict) else one for one in level if isinstance(one, dict | list))
        level = list(chain.from_iterable(inner))
    return f"it nests tables more than {MAX_DEPTH} levels deep" if level else ""


def shortened(error: BaseException) -> str:
    """What a decoder reports, in one line of limited length: some quote the whole input."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or shortened(error)


def problem_of_archive(archive: "ZipFile", size_bytes: int) -> str:
    """Why a zip archive of this size is not read; "" where it is.

    Python allocates what a member claims before it reads it, and what an unusual compression asks for.
    """
    for one in archive.infolist():
        if one.compress_type not in (_STORED, _DEFLATED):
            return f"its member {one.filename[:80]!r} is compressed in a way that is not read"
        if one.compress_size > size_bytes:
            return f"its member {one.filename[:80]!r} claims to have more bytes than the file"
    return ""
