"""What a sweep asks for: --sweep seq_len=128..32768 and the like."""

from torchstone.errors import InputError
from torchstone.record.base import Record

PARAMETERS = ("seq_len", "batch_size", "cache_len", "image_size", "layers")
_MOST = 64


class Sweep(Record, frozen=True, kw_only=True):
    """A parameter and the values it takes."""

    parameter: str
    values: tuple[int, ...]


def parse_sweep(text: str) -> Sweep:
    """`name=first..last` doubles from first to last; `name=1,2,3` takes these values."""
    name, equals, given = text.partition("=")
    name = name.strip().replace("-", "_")
    if not equals or name not in PARAMETERS:
        msg = f"--sweep {text}: give NAME=FIRST..LAST or NAME=A,B,C with NAME one of {', '.join(PARAMETERS)}"
        raise InputError(msg)
    try:
        values = _values(given)
    except ValueError:
        msg = f"--sweep {text}: the values must be whole numbers, as in {name}=128..4096 or {name}=1,2,4"
        raise InputError(msg) from None
    if not values or min(values) < 1 or len(values) > _MOST:
        msg = f"--sweep {text}: give 1 to {_MOST} values, all at least 1, the smaller one first"
        raise InputError(msg)
    return Sweep(parameter=name, values=values)


def _values(given: str) -> tuple[int, ...]:
    first, dots, last = given.partition("..")
    if not dots:
        return tuple(int(value) for value in given.split(","))
    low, high = int(first), int(last)
    values: list[int] = []
    while 0 < low < high and len(values) <= _MOST:
        values.append(low)
        low *= 2
    return (*values, high) if 0 < int(first) <= high else ()
