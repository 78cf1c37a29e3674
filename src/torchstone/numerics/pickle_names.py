"""The names in a pickle, read without executing it: torch takes minutes for its message about a long one."""

import io
import pickletools
import re
import struct
import zipfile
from itertools import islice
from typing import IO

_LONGEST = 1_000
_LONG_LINE = re.compile(rb"[^\n]{%d}" % _LONGEST)  # names are lines of the pickle
_MOST_BYTES = 1 << 26  # of a pickle, without the numbers of its tensors
_PICKLES = 5  # that an older file of torch.save begins with
_GLOBALS = frozenset({"GLOBAL", "INST"})


def names_too_long(file: IO[bytes]) -> bool:
    """Whether a file of torch.save names a class by more than a thousand characters.

    What is damaged is left to torch, which says what is wrong with it.
    """
    text = _pickle_in(file)
    if _LONG_LINE.search(text) is None:
        return False
    stream = io.BytesIO(text)
    try:
        for _ in range(_PICKLES):
            for opcode, argument, _place in pickletools.genops(stream):
                if opcode.name in _GLOBALS and len(str(argument)) > _LONGEST:
                    return True
    except (ValueError, struct.error, EOFError, OverflowError):
        return False
    return False


def _pickle_in(file: IO[bytes]) -> bytes:
    try:
        with zipfile.ZipFile(file) as archive:
            names = [one.filename for one in archive.infolist() if one.filename.endswith("data.pkl")]
            return b"".join(_beginning(archive, name) for name in islice(names, _PICKLES))
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, OSError, EOFError, ValueError, KeyError):
        file.seek(0)
        return file.read(_MOST_BYTES)


def _beginning(archive: zipfile.ZipFile, name: str) -> bytes:
    with archive.open(name) as member:
        return member.read(_MOST_BYTES)
