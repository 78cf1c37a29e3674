"""A formula on a device -> one SVG: memory and time over one unknown, what fits, and what bounds the call where."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log
from pathlib import Path

from torchstone.record.codec import write_atomically
from torchstone.record.formula import COMPUTE, TRAFFIC, TradeOff
from torchstone.units import show_bytes, show_seconds

_WIDTH, _LEFT, _RIGHT = 780, 92, 44
_PANEL, _GAP, _TOP, _BOTTOM = 210, 58, 74, 58
_INK, _GRID = "#222", "#ddd"
_OCCUPIED = "occupied memory"
_COLOURS = {_OCCUPIED: "#5b4fa2", COMPUTE: "#c2551e", TRAFFIC: "#1f7a8c"}
_SHADES = {COMPUTE: "#fbeee6", TRAFFIC: "#e7f3f5"}
_FONT = 'font-family="Helvetica, Arial, sans-serif"'
_MOST_TICKS = 6
_TEN, _SIXTEEN = 10, 16  # bytes are divided by powers of two
_ROOM = 90  # pixels that a label needs


@dataclass(frozen=True, slots=True)
class _Axis:
    """A logarithmic axis: a value -> its place in pixels."""

    low: float  # powers of the base
    high: float
    start: float  # pixels
    end: float
    base: int = _TEN

    @staticmethod
    def around(values: Sequence[float], start: float, end: float, base: int = _TEN) -> "_Axis":
        """Whole powers of the base around all values."""
        positive = [one for one in values if one > 0] or [1.0]
        low, high = floor(log(min(positive), base)), ceil(log(max(positive), base))
        return _Axis(low, max(high, low + 1), start, end, base)

    def at(self, value: float) -> float:
        share = (log(value, self.base) - self.low) / (self.high - self.low) if value > 0 else 0.0
        return self.start + min(max(share, 0.0), 1.0) * (self.end - self.start)

    @property
    def ticks(self) -> list[float]:
        """Powers of the base, every second or third one where there are many."""
        powers = range(int(self.low), int(self.high) + 1)
        return [float(self.base) ** power for power in powers[:: max(1, ceil(len(powers) / _MOST_TICKS))]]


def write_chart(path: Path, found: TradeOff) -> None:
    """Write the chart to a file, whole or not at all."""
    write_atomically(path, trade_off_chart(found))


def trade_off_chart(found: TradeOff) -> bytes:
    """Two panels over the same unknown: memory with the limit of the device, and time by what bounds the call."""
    values = [one.value for one in found.points]
    across = _Axis(log(values[0], _TEN), log(max(values[-1], values[0] * 2), _TEN), _LEFT, _WIDTH - _RIGHT)
    occupied = [found.memory_bytes, *(one.memory_bytes for one in found.points)]
    memory = _Axis.around(occupied, _TOP + _PANEL, _TOP, _SIXTEEN)
    second = _TOP + _PANEL + _GAP
    seconds = [time for one in found.points for time in (one.compute_s, one.traffic_s)]
    time = _Axis.around(seconds, second + _PANEL, second)
    height = second + _PANEL + _BOTTOM
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" viewBox="0 0 {_WIDTH} {height}">',
        f"<title>{escape(found.module_path)} on {escape(found.hardware.title)}</title>",
        '<rect width="100%" height="100%" fill="#fff"/>',
        *_header(found),
        *_shaded(found, across, second),
        *_grid(memory, lambda value: show_bytes(int(value)), "memory of each device"),
        *_grid(time, show_seconds, "time of a call"),
        *_unknowns(found, across, height),
        _limit(found, memory),
        *_fitting(found, across, height),
        _line([(across.at(one.value), memory.at(one.memory_bytes)) for one in found.points], _OCCUPIED),
        _line([(across.at(one.value), time.at(one.compute_s)) for one in found.points], COMPUTE),
        _line([(across.at(one.value), time.at(one.traffic_s)) for one in found.points], TRAFFIC),
        *_legend(second),
        "</svg>",
    ]
    return "\n".join(parts).encode() + b"\n"


def _text(x: float, y: float, text: str, *, size: int = 11, anchor: str = "start", colour: str = _INK) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{colour}" {_FONT}>'
        f"{escape(text)}</text>"
    )


def _header(found: TradeOff) -> list[str]:
    name, unknown = found.module_path.rpartition(".")[2], found.parameter
    devices = f"{found.devices} x " if found.devices > 1 else ""
    turns = ", ".join(f"{bound}-bound from {unknown} = {first:,}" for first, bound in found.bounds)
    fits = f"no {unknown} fits" if found.fits is None else f"{unknown} = {found.fits:,} fits"
    return [
        _text(_LEFT, 24, f"{name} on {devices}{found.hardware.title}, {found.element_type}", size=15),
        _text(_LEFT, 44, f"{fits} in {show_bytes(found.memory_bytes)}; {turns}", size=12),
    ]


def _shaded(found: TradeOff, across: _Axis, top: float) -> list[str]:
    """Behind the times: what bounds the call, from one crossing to the next."""
    bounds = [(max(first, found.points[0].value), bound) for first, bound in found.bounds]
    ends = [first for first, _ in bounds[1:]] + [found.points[-1].value]
    shown = []
    for (first, bound), last in zip(bounds, ends, strict=True):
        start, end = across.at(first), across.at(last)
        if end > start:
            shown.append(
                f'<rect x="{start:.1f}" y="{top}" width="{end - start:.1f}" height="{_PANEL}" fill="{_SHADES[bound]}"/>'
            )
        if end - start > _ROOM:
            shown.append(_text((start + end) / 2, top + 14, f"{bound}-bound", anchor="middle", colour=_COLOURS[bound]))
    return shown


def _grid(axis: _Axis, show: Callable[[float], str], title: str) -> list[str]:
    shown = [_text(_LEFT, axis.end - 6, title, size=11)]
    for tick in axis.ticks:
        y = axis.at(tick)
        shown.append(f'<line x1="{_LEFT}" y1="{y:.1f}" x2="{_WIDTH - _RIGHT}" y2="{y:.1f}" stroke="{_GRID}"/>')
        shown.append(_text(_LEFT - 8, y + 4, show(tick), anchor="end"))
    return shown


def _unknowns(found: TradeOff, across: _Axis, height: float) -> list[str]:
    values = [one.value for one in found.points if one.value & (one.value - 1) == 0]
    step = max(1, ceil(len(values) / 10))
    labels = [_text(across.at(one), height - _BOTTOM + 18, f"{one:,}", anchor="middle") for one in values[::step]]
    return [*labels, _text((_LEFT + _WIDTH - _RIGHT) / 2, height - 14, found.parameter, anchor="middle", size=12)]


def _limit(found: TradeOff, memory: _Axis) -> str:
    y = memory.at(found.memory_bytes)
    line = (
        f'<line x1="{_LEFT}" y1="{y:.1f}" x2="{_WIDTH - _RIGHT}" y2="{y:.1f}" stroke="#b00020" stroke-dasharray="6 4"/>'
    )
    return line + _text(
        _LEFT + 6, y - 5, f"{show_bytes(found.memory_bytes)} of {found.hardware.title}", colour="#b00020"
    )


def _fitting(found: TradeOff, across: _Axis, height: float) -> list[str]:
    if found.fits is None:
        return []
    x = across.at(found.fits)
    line = (
        f'<line x1="{x:.1f}" y1="{_TOP}" x2="{x:.1f}" y2="{height - _BOTTOM}" stroke="#2e7d32" stroke-dasharray="3 3"/>'
    )
    label = _text(x - 5, _TOP + 14, f"{found.parameter} = {found.fits:,}", anchor="end", colour="#2e7d32")
    return [line, label]


def _line(points: Sequence[tuple[float, float]], kind: str) -> str:
    joined = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline points="{joined}" fill="none" stroke="{_COLOURS[kind]}" stroke-width="2"/>'


def _legend(top: float) -> list[str]:
    names = ((COMPUTE, "arithmetic at the peak rate"), (TRAFFIC, "bytes at the memory bandwidth"))
    shown = []
    for number, (kind, text) in enumerate(names):
        x = _WIDTH - _RIGHT - 420 + 210 * number
        shown.append(f'<rect x="{x}" y="{top - 15}" width="14" height="4" fill="{_COLOURS[kind]}"/>')
        shown.append(_text(x + 20, top - 8, text))
    return shown
