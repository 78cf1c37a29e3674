"""How files are damaged: byte by byte, by the structure of JSON, and inside archives, databases and packed files.

Damage to the bytes of an archive hardly gets past its checksums. So the mutators of containers change what is inside
and pack it again: the reader then meets a well-formed file with content that nobody would write.
"""

import copy
import gzip
import io
import json
import marshal
import re
import sqlite3
import warnings
import zipfile
from collections.abc import Callable
from functools import lru_cache
from random import Random
from typing import Any

import msgspec

Mutate = Callable[[bytes, Random], bytes]

_TOKENS = (
    b"-1", b"0", b"1e999", b"9" * 30, b"null", b"true", b"[]", b"{}", b'""', b"\xff", b"\x00", b"\x1b[31m", b"NaN",
    b"\\u0000", b"[[[[", b'"', b"\n", b"18446744073709551616", b"-0.0", b"1e-400", b"0x10", b"1_0", b"\r\n",
    b"\xef\xbb\xbf", b"\\ud800", "\u0663".encode(), "\u202e".encode(), b"-Infinity", b"'", b"\\", b"9007199254740993",
    b"%", b"$", b"../", b"9" * 5_000,
)  # fmt: skip
_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**63, -(2**63), 10**40, 1.5, 1e308, -0.0, "", "x", "\x1b]0;t\x07", "\ud800",
    "a" * 300, [], {}, [[]], [0], [-1], {"a": 1}, [None] * 40, 2**53 + 1, 5e-324, "\x00", "\u0663", "-1", "NaN",
    float("inf"), float("nan"), "../x", "\u202ex", {"": None}, 2**62, 1e15,
    10**308, "9" * 5_000,
)  # fmt: skip
_NUMBERS = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 2**62, 2**63, 2**64 - 1)
_NUMBER_TEXT = re.compile(rb"-?\d{1,40}")
_KEY = re.compile(rb'"[^"\\]{1,60}"\s*:')
_DEPTHS = (1, 2, 20, 70, 200)
_RARELY = 48  # one mutant in 48 is changed as a whole: its encoding, its line ends, twice itself


# --- Bytes ---


def mutate_bytes(content: bytes, dice: Random) -> bytes:
    """Flip, delete, repeat, insert, cut or move bytes, or change a number, one to four times."""
    data = bytearray(content)
    for _ in range(dice.randint(1, 4)):
        _damage(data, dice)
    return bytes(data) if dice.randrange(_RARELY) else _as_a_whole(bytes(data), dice)


def _damage(data: bytearray, dice: Random) -> None:
    at = dice.randrange(len(data) + 1)
    end = min(len(data), at + dice.choice((1, 1, 2, 8, 64)))
    match dice.randrange(11):
        case 0 if at < len(data):
            data[at] ^= 1 << dice.randrange(8)
        case 1 if at < len(data):
            data[at] = dice.randrange(256)
        case 2:
            del data[at:end]
        case 3:
            data[at:at] = data[at:end]
        case 4:
            data[at:end] = dice.choice(_TOKENS)
        case 5:
            data[at:at] = dice.choice(_TOKENS)
        case 6 | 7 | 8 | 9:
            _damage_field(data, at, end, dice)
        case _:
            if dice.randrange(8) == 0:
                del data[at:]


def _damage_field(data: bytearray, at: int, end: int, dice: Random) -> None:
    """Change what looks like a number or a key at a place, or overwrite it with a number or a part of another place."""
    match dice.randrange(4):
        case 0 if found := _NUMBER_TEXT.search(data, at, at + 200):
            data[found.start() : found.end()] = _near(int(found[0]), len(data), dice)
        case 1 if found := _KEY.search(data, at, at + 200):
            data[found.start() : found.start()] = found[0] + dice.choice(_TOKENS[:9]) + b","  # the same key twice
        case 2:
            size = dice.choice((1, 2, 4, 8))
            number = dice.choice((*_NUMBERS, len(data), len(data) - at)) + dice.choice((-1, 0, 0, 1))
            data[at : at + size] = (number % (1 << 8 * size)).to_bytes(size, dice.choice(("little", "big")))
        case _:  # with the same length: offsets behind it stay right
            other = dice.randrange(len(data) + 1)
            part = data[other : other + end - at]
            data[at : at + len(part)] = part


def _near(number: int, size: int, dice: Random) -> bytes:
    """A number close to another one, to the size of the file, or one that only looks like a number."""
    others = (number + 1, number - 1, -number, 2 * number, size, 2**31, 2**63, 10**30)
    return dice.choice(
        (*(b"%d" % one for one in others), b"%d.0" % number, b"%de3" % number, b"0%d" % number, b"1e999")
    )


def _as_a_whole(content: bytes, dice: Random) -> bytes:
    match dice.randrange(8):
        case 0:
            return b"\xef\xbb\xbf" + content
        case 1:
            return content.decode("latin-1").encode(dice.choice(("utf-16", "utf-16-le", "utf-32")))
        case 2:
            return content.replace(b"\n", b"\r\n")
        case 3:
            return content.replace(b"\n", b"\r")
        case 4:
            return content + dice.choice((content, b"\x00", b"}", b"\n\n", b"\x1a"))
        case 5:
            lines = content.splitlines(keepends=True)
            dice.shuffle(lines)
            return b"".join(lines)
        case 6:  # what a search takes the square of its length for
            at = dice.randrange(len(content) + 1)
            return content[:at] + dice.choice((b"a", b"0", *_TOKENS[:24], content[at : at + 8])) * 20_000 + content[at:]
        case _:
            return dice.choice((b"", b" ", b"\n", b"null", b"[]", b"{}", b'"', b"0", b"[" * 20_000))


def mutate_in_place(content: bytes, dice: Random) -> bytes:
    """Overwrite bytes only: in a file of pages every other byte stays where its offsets say."""
    data = bytearray(content)
    for _ in range(dice.randint(1, 3)):
        at = dice.randrange(len(data))
        if dice.randrange(3):
            data[at] = dice.choice((0, 1, 0x7F, 0x80, 0xFF, data[at] ^ 1 << dice.randrange(8), dice.randrange(256)))
        else:
            part = data[dice.randrange(len(data)) :][: dice.choice((2, 4, 8, 32))]
            data[at : at + len(part)] = part
            del data[len(content) :]
    return bytes(data)


# --- JSON ---


def mutate_json(content: bytes, dice: Random) -> bytes:
    """Change one to three values of a document: to another value, a near number, or by moving parts about."""
    document = [marshal.loads(_packed(content))]  # noqa: S302 - packed below, in this process
    for _ in range(dice.randint(1, 3)):
        holder, key = _place(document, dice)
        _change(document, holder, key, dice)
    try:
        written = msgspec.json.encode(document[0])
    except (UnicodeEncodeError, OverflowError):  # half a character, or a number that only Python has
        written = json.dumps(document[0]).encode("utf-8", "surrogatepass")
    if dice.randrange(_RARELY) == 0:
        data = bytearray(written)
        _damage(data, dice)
        return bytes(data)
    return written


@lru_cache(maxsize=256)
def _packed(content: bytes) -> bytes:
    """A document in the form that Python reads fastest: it is read for each mutant."""
    return marshal.dumps(json.loads(content))


def _place(document: list[Any], dice: Random) -> tuple[Any, Any]:
    """A random place: deeper with every step, so that all levels are met."""
    holder: Any = document
    key: Any = 0
    while isinstance(holder[key], dict | list) and holder[key] and dice.randrange(6):
        holder = holder[key]
        key = dice.choice(list(holder)) if isinstance(holder, dict) else dice.randrange(len(holder))
    return holder, key


def _change(document: list[Any], holder: Any, key: Any, dice: Random) -> None:
    value = holder[key]
    match dice.randrange(11):
        case 0 if isinstance(value, int) and not isinstance(value, bool):
            holder[key] = value + dice.choice((-1, 1, 2, 100, -100, value, -2 * value))
        case 1 if isinstance(holder, list) and len(holder) > 1:
            other = dice.randrange(len(holder))
            holder[key], holder[other] = holder[other], holder[key]
        case 2 if isinstance(holder, dict):
            del holder[key]
        case 3 if isinstance(value, list) and value:
            value.append(value[dice.randrange(len(value))])
        case 4 if isinstance(value, list) and value:
            del value[dice.randrange(len(value))]
        case 5 | 6 if not isinstance(value, dict | list):
            _exchange(document, holder, key, dice)
        case 7 if dice.randrange(8) == 0:
            for _ in range(dice.choice(_DEPTHS)):
                value = [value] if dice.randrange(2) else {"a": value}
            holder[key] = value
        case 8 if isinstance(holder, dict):
            holder[dice.choice(("", "x", "\x00", f"{key} ", str(key).upper()))] = holder.pop(key)
        case _:
            holder[key] = copy.deepcopy(dice.choice(_VALUES))  # later mutations must not change the table


def _exchange(document: list[Any], holder: Any, key: Any, dice: Random) -> None:
    """Refer to something else: a value of the same type from elsewhere, or a number at the border of a list."""
    value = holder[key]
    for _ in range(6):
        other_holder, other = _place(document, dice)
        found = other_holder[other]
        if isinstance(found, list) and isinstance(value, int):
            holder[key] = len(found) + dice.choice((-1, 0, 1))
            return
        if type(found) is type(value) and found != value:
            holder[key] = found
            if dice.randrange(2):
                other_holder[other] = value
            return


def mutate_json_lines(content: bytes, dice: Random) -> bytes:
    """Change the JSON of one line, or the order of lines."""
    lines = content.splitlines(keepends=True)
    at = dice.randrange(len(lines))
    match dice.randrange(6):
        case 0 if len(lines) > 1:
            other = dice.randrange(len(lines))
            lines[at], lines[other] = lines[other], lines[at]
        case 1:
            lines.insert(at, lines[dice.randrange(len(lines))])
        case _:
            lines[at] = mutate_json(lines[at], dice) + b"\n"
    return b"".join(lines)


# --- Containers: what is inside changes, and is packed again ---


def mutate_part(content: bytes, dice: Random) -> bytes:
    """Damage a part of a container: by its structure where it is JSON."""
    if content[:1] in (b"{", b"[") and dice.randrange(3):
        try:
            return mutate_json(content, dice)
        except ValueError:
            return mutate_bytes(content, dice)
    return mutate_bytes(content, dice)


def mutate_gzip(content: bytes, dice: Random) -> bytes:
    """Damage what a gzip file contains."""
    return gzip.compress(mutate_part(_unzipped(content), dice), compresslevel=1, mtime=0)


@lru_cache(maxsize=64)
def _unzipped(content: bytes) -> bytes:
    return gzip.decompress(content)


def mutate_zip(content: bytes, dice: Random) -> bytes:
    """Damage, remove, repeat or rename a member of an archive, with checksums that are right."""
    members = list(_members(content))
    at = dice.randrange(len(members))
    name, data = members[at]
    match dice.randrange(10):
        case 0:
            del members[at]
        case 1:
            members.append((name, mutate_part(data, dice)))
        case 2:
            names = ("../x", "/x", name + "x", name.upper(), members[dice.randrange(len(members))][0], "x" * 300)
            members[at] = (dice.choice(names), data)
        case 3:
            members[at] = (name, members[dice.randrange(len(members))][1])
        case _:
            members[at] = (name, mutate_part(data, dice))
    file = io.BytesIO()
    with warnings.catch_warnings(action="ignore"), zipfile.ZipFile(file, "w") as archive:  # of a name that is there
        for one, part in members:
            archive.writestr(zipfile.ZipInfo(one), part)
    return file.getvalue()


@lru_cache(maxsize=64)
def _members(content: bytes) -> tuple[tuple[str, bytes], ...]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return tuple((one.filename, archive.read(one)) for one in archive.infolist())


def mutate_safetensors(content: bytes, dice: Random) -> bytes:
    """Damage the header of a safetensors file; the length before it stays right."""
    length = int.from_bytes(content[:8], "little")
    header = mutate_json(content[8 : 8 + length], dice)
    return len(header).to_bytes(8, "little") + header + content[8 + length :]


def mutate_npy(content: bytes, dice: Random) -> bytes:
    """Damage the header of an array file, which is text; the length before it stays right."""
    length = int.from_bytes(content[8:10], "little")
    header = bytearray(content[10 : 10 + length])
    for _ in range(dice.randint(1, 2)):
        _damage(header, dice)
    del header[0xFFFF:]
    return content[:8] + len(header).to_bytes(2, "little") + bytes(header) + content[10 + length :]


_NO_LOG = b"\x01\x01"  # bytes 18 and 19: a database in memory has no write-ahead log


@lru_cache(maxsize=16)
def _cells(content: bytes) -> tuple[tuple[str, str], ...]:
    """The columns of the tables of a database, by table."""
    connection = sqlite3.connect(":memory:")
    connection.deserialize(content[:18] + _NO_LOG + content[20:])
    tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    return tuple((table, row[1]) for table in tables for row in connection.execute(f"PRAGMA table_info('{table}')"))


def mutate_sqlite(content: bytes, dice: Random) -> bytes:
    """Write other values into the cells of a database that stays well-formed."""
    connection = sqlite3.connect(":memory:")
    connection.text_factory = bytes
    connection.deserialize(content[:18] + _NO_LOG + content[20:])
    table, column = dice.choice(_cells(content))
    try:
        rows = connection.execute(f'SELECT "{column}" FROM "{table}"').fetchall()  # noqa: S608 - its own names
        if not rows or dice.randrange(20) == 0:
            connection.execute(f'DELETE FROM "{table}"')  # noqa: S608
        else:
            value = _other_cell(dice.choice(rows)[0], dice)
            connection.execute(f'UPDATE "{table}" SET "{column}" = ?', (value,))  # noqa: S608
        connection.commit()
    except (sqlite3.Error, OverflowError):  # a value that the column does not take
        return mutate_in_place(content, dice)
    written: bytes = connection.serialize()
    connection.close()
    return written[:18] + content[18:20] + written[20:]


def _other_cell(value: Any, dice: Random) -> Any:
    if isinstance(value, bytes):
        text = mutate_part(value, dice)
        return text.decode("utf-8", "replace") if dice.randrange(4) else text.decode("latin-1")
    if isinstance(value, int):
        return dice.choice((value + 1, value - 1, -1, 0, 2**31, 2**63 - 1, -(2**63), None, "x", 1.5))
    return dice.choice((None, 0, -1, "", "x", "null", "{}", 1.5, 2**62, b"\xff", float("inf")))
