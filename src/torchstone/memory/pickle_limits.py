"""Refuse a pickle that makes Python allocate far more than the file has, before anything of it is unpickled.

The unpickler of Python keeps a list of the objects that later opcodes refer to. An opcode says at which place of the
list an object goes, and the list grows to twice that place at once: 20 bytes can take 64 GiB. In a pickle that a
program wrote, no place is beyond the number of objects before it, which is less than the number of bytes before it.
Data of a length that the file does not have is allocated before it is read, too.
"""

import re

_STOP, _PUT, _LONG_PUT = b".pr"
_PLAIN = re.compile(  # opcodes with an argument of fixed length; possessive, so that no state is kept for each of them
    rb"(?:[(012NQRabd}el\]ostu)\x81\x85-\x89\x8f-\x94\x97\x98]|[Khq\x80\x82].|[M\x83].{2}|[Jj\x84].{4}|r.{3}\x00"
    rb"|[G\x95].{8}){0,100000}+",
    re.DOTALL,
)
_LENGTH_BYTES = {
    **dict.fromkeys(b"UC\x8a\x8c", 1),
    **dict.fromkeys(b"TXB\x8b", 4),
    **dict.fromkeys(b"\x8d\x8e\x96", 8),
}  # opcodes with data, and the bytes of its length
_LINES = {**dict.fromkeys(b"FILSVPgp", 1), **dict.fromkeys(b"ci", 2)}  # opcodes with lines of text
_MOST_DIGITS = 20


def problem_of_pickle(data: bytes) -> str:
    """What is wrong with the places that a pickle refers to; "" for nothing, and for what the unpickler will refuse."""
    at = 0
    while at < len(data):
        found = _PLAIN.match(data, at)
        after = found.end() if found is not None else at
        if after > at:
            at = after
            continue
        opcode = data[at]
        if opcode == _LONG_PUT:
            if int.from_bytes(data[at + 1 : at + 5], "little") > at:
                return _described(at)
            at += 5
        elif opcode in _LENGTH_BYTES:
            start = at + 1 + _LENGTH_BYTES[opcode]
            end = start + int.from_bytes(data[at + 1 : start], "little")
            if end > len(data):
                return f"byte {at:,} announces more data than the file has"
            at = end
        elif opcode in _LINES:
            end = _end_of_lines(data, at + 1, _LINES[opcode])
            if opcode == _PUT and _place(data[at + 1 : end]) > at:
                return _described(at)
            at = end
        else:  # the end, or no opcode
            return ""
    return ""


def _described(at: int) -> str:
    return f"byte {at:,} puts an object at a place that the pickle cannot have"


def _end_of_lines(data: bytes, start: int, count: int) -> int:
    for _ in range(count):
        start = data.find(b"\n", start) + 1 or len(data)
    return start


def _place(text: bytes) -> int:
    digits = text.strip()
    return int(digits) if digits.isdigit() and len(digits) <= _MOST_DIGITS else 1 << 64
