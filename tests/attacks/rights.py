"""The rights of an ordinary user, for tests that are run by root."""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager


class _Capabilities(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


@contextmanager
def without_override() -> Iterator[None]:
    """Without root's right to read and write every file, for this thread and those it starts."""
    libc = ctypes.CDLL(None, use_errno=True)
    head, data = _Capabilities(0x20080522, 0), (ctypes.c_uint32 * 6)()
    assert libc.capget(ctypes.byref(head), data) == 0
    before = data[0]
    data[0] &= ~0b110  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
    assert libc.capset(ctypes.byref(head), data) == 0
    try:
        yield
    finally:
        data[0] = before
        assert libc.capset(ctypes.byref(head), data) == 0
