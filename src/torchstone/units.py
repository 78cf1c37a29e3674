"""Counts, bytes and seconds as people read them; the one place where units are converted."""

import re

_SIZE = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<scale>[KMGTkmgt]?)(?P<binary>i?)[Bb]?")
_SCALES = ("", "K", "M", "G", "T")
_BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_DECIMAL = ("", " K", " M", " G", " T", " P", " E")
_THOUSAND = 1000
_KIBI = 1024
_TEN = 10
_HUNDRED = 100


def show_bytes(count: int) -> str:
    """Show a number of bytes in binary units: 1536 -> '1.50 KiB'."""
    value, unit = float(count), 0
    while abs(value) >= _KIBI and unit < len(_BINARY) - 1:
        value /= _KIBI
        unit += 1
    return f"{count} B" if unit == 0 else f"{_three_digits(value)} {_BINARY[unit]}"


def parse_bytes(text: str) -> int:
    """Bytes from 512, 300MB or 2.5 GiB; a unit without an i counts in thousands."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        msg = f"{text!r} is no size; give it as 512MiB or 2GiB"
        raise ValueError(msg)
    power = _SCALES.index(found["scale"].upper())
    return int(float(found["number"]) * (_KIBI if found["binary"] else _THOUSAND) ** power)


def show_count(count: int) -> str:
    """Show a large count in decimal units: 6738415616 -> '6.74 G'."""
    value, unit = float(count), 0
    while abs(value) >= _THOUSAND and unit < len(_DECIMAL) - 1:
        value /= _THOUSAND
        unit += 1
    return str(count) if unit == 0 else f"{_three_digits(value)}{_DECIMAL[unit]}"


def show_seconds(seconds: float) -> str:
    """Show a duration: 0.0123 -> '12.3 ms'."""
    if seconds >= 1:
        return f"{_three_digits(seconds)} s"
    if seconds >= 1e-3:  # noqa: PLR2004 - a millisecond
        return f"{_three_digits(seconds * 1e3)} ms"
    return f"{_three_digits(seconds * 1e6)} µs"


def _three_digits(value: float) -> str:
    size = abs(value)
    if size < _TEN:
        return f"{value:.2f}"
    return f"{value:.1f}" if size < _HUNDRED else f"{value:.0f}"
