"""Counts, bytes and seconds as people read them; the one place where units are converted."""

import re
import sys
from fractions import Fraction

_BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_DECIMAL = ("", " K", " M", " G", " T", " P", " E")
_THOUSAND = 1000
_KIBI = 1024
_TEN = 10
_HUNDRED = 100
_AMOUNT = re.compile(r"(?P<number>[0-9]{1,99}(\.[0-9]{1,99})?)(e\+?(?P<exponent>[0-9]{1,2}))?\s*(?P<unit>[A-Za-z]*)")
MOST_BYTES = (1 << 63) - 1  # of any memory or file; the system takes no larger number


def show_bytes(count: int) -> str:
    """Show a number of bytes in binary units: 1536 -> '1.50 KiB'."""
    value, unit = _finite(count), 0
    while abs(value) >= _KIBI and unit < len(_BINARY) - 1:
        value /= _KIBI
        unit += 1
    return f"{count} B" if unit == 0 else f"{_three_digits(value)} {_BINARY[unit]}"


def show_count(count: int) -> str:
    """Show a large count in decimal units: 6738415616 -> '6.74 G'."""
    value, unit = _finite(count), 0
    while abs(value) >= _THOUSAND and unit < len(_DECIMAL) - 1:
        value /= _THOUSAND
        unit += 1
    return str(count) if unit == 0 else f"{_three_digits(value)}{_DECIMAL[unit]}"


def show_flops(count: int, unit: str = "FLOPs") -> str:
    """Show a number of FLOPs: 11440 -> '11.4 KFLOPs', 600 -> '600 FLOPs'; or of MACs."""
    return f"{show_count(count)}{'' if count >= _THOUSAND else ' '}{unit}"


def _finite(count: int) -> float:
    """The count, or the largest float where it is beyond: only a damaged file has such a count."""
    return float(min(count, sys.float_info.max))


def many(count: int, noun: str, plural: str = "") -> str:
    """A number with its noun: '1 module', '1,234 modules'; `plural` where it is not the noun with an s."""
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"


def show_seconds(seconds: float) -> str:
    """Show a duration: 0.0123 -> '12.3 ms'."""
    if seconds >= 1:
        return f"{_three_digits(seconds)} s"
    if seconds >= 1e-3:  # noqa: PLR2004 - a millisecond
        return f"{_three_digits(seconds * 1e3)} ms"
    if 0 < seconds < 1e-8:  # noqa: PLR2004 - less than three digits of a microsecond
        return f"{_three_digits(seconds * 1e9)} ns"
    return f"{_three_digits(seconds * 1e6)} µs"


def read_bytes(text: str) -> int | None:
    """A size as people write it: '80GiB', '1.5 MB' (decimal), '4096'; None if it is not a size of anything."""
    found = _read(text, {unit.lower(): _KIBI**power for power, unit in enumerate(_BINARY)} | _decimal_units("b"))
    return None if found is None or found > MOST_BYTES else found


def read_count(text: str) -> int | None:
    """A count as people write it: '1.5T', '2e15', '1000'; None if it is not a count."""
    return _read(text, _decimal_units(""))


def _decimal_units(suffix: str) -> dict[str, int]:
    units = {f"{unit.strip().lower()}{suffix}": _THOUSAND**power for power, unit in enumerate(_DECIMAL)}
    return {"": 1} | units


def _read(text: str, factors: dict[str, int]) -> int | None:
    found = _AMOUNT.fullmatch(text.strip().replace(",", "").replace("_", ""))
    if found is None or found["unit"].lower() not in factors:
        return None
    number = Fraction(found["number"]) * _TEN ** int(found["exponent"] or 0) * factors[found["unit"].lower()]
    return int(number)


def _three_digits(value: float) -> str:
    size = abs(value)
    if size < _TEN:
        return f"{value:.2f}"
    return f"{value:.1f}" if size < _HUNDRED else f"{value:.0f}"
