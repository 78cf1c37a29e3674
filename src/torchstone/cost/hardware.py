"""Hardware by name, from the presets or from a file of the same form."""

import json
import re
import tomllib
from collections.abc import Mapping
from importlib.resources import files
from math import isfinite
from pathlib import Path
from typing import Any

from torchstone.errors import InputError
from torchstone.record.hardware import Hardware

_GIGA = 1e9
_TERA = 1e12
_MICRO = 1e-6
_BARE = re.compile(r"[A-Za-z0-9_-]+")  # names that TOML takes without quotes
_REQUIRED = ("peak_tflops", "memory_gb", "bandwidth_gb_per_s")
_KNOWN = frozenset((*_REQUIRED, "title", "vector_tflops", "launch_us", "link_gb_per_s", "devices", "source", "note"))


def presets() -> dict[str, Hardware]:
    """The devices that ship with torchstone, by name."""
    text = files("torchstone.cost").joinpath("presets.toml").read_text(encoding="utf-8")
    return _read(text, origin="the presets")


def find_hardware(name: str) -> Hardware:
    """A preset, or the device of a file.toml; file.toml::NAME where it holds several."""
    path, _, wanted = name.partition("::")
    if not path.endswith(".toml"):
        known = presets()
        if name.lower() in known:
            return known[name.lower()]
        msg = f"there is no hardware {name!r}; choose one of {', '.join(known)}, or give a file.toml"
        raise InputError(msg)
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        msg = f"cannot read the hardware file {path}: {error}"
        raise InputError(msg) from error
    found = _read(text, origin=path)
    if not wanted and len(found) == 1:
        return next(iter(found.values()))
    if wanted in found:
        return found[wanted]
    if not found:
        msg = f"{path} describes no device; `torchstone hardware show n150` prints one to start from"
        raise InputError(msg)
    msg = f"{path} holds {', '.join(found)}; choose with {path}::NAME"
    raise InputError(msg)


def _read(text: str, *, origin: str) -> dict[str, Hardware]:
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        msg = f"{origin} is not a TOML file: {error}"
        raise InputError(msg) from error
    return {name: _hardware(name, values, origin) for name, values in document.items()}


def _hardware(name: str, values: Any, origin: str) -> Hardware:
    if not isinstance(values, Mapping):
        msg = f"{origin} must hold a table [{name}] with {', '.join(_REQUIRED)}, not a value"
        raise InputError(msg)
    missing = [key for key in _REQUIRED if key not in values]
    unknown = [key for key in values if key not in _KNOWN]
    if missing or unknown:
        wrong = f"lacks {missing[0]}" if missing else f"has an unknown key {unknown[0]!r}"
        msg = f"[{name}] in {origin} {wrong}; the keys are {', '.join(sorted(_KNOWN))}"
        raise InputError(msg)
    peak = _peak(name, values["peak_tflops"], origin)

    def number(key: str, default: float) -> float:
        return _number(values.get(key, default), key, origin)

    link = values.get("link_gb_per_s")
    return Hardware(
        name=name,
        title=str(values.get("title", name)),
        peak_flops=peak,
        vector_flops=number("vector_tflops", peak.get("float32", min(peak.values())) / _TERA) * _TERA,
        memory_bytes=int(number("memory_gb", 0) * _GIGA),
        memory_bytes_per_s=number("bandwidth_gb_per_s", 0) * _GIGA,
        launch_s=number("launch_us", 0) * _MICRO if values.get("launch_us") else 0.0,
        link_bytes_per_s=None if link is None else _number(link, "link_gb_per_s", origin) * _GIGA,
        devices=int(number("devices", 1)),
        source=str(values.get("source", origin)),
        note=str(values.get("note", "")),
    )


def _peak(name: str, rates: Any, origin: str) -> dict[str, float]:
    if not isinstance(rates, Mapping) or not rates:
        msg = f"[{name}] in {origin} must name rates by element type, as in peak_tflops = {{ bfloat16 = 100 }}"
        raise InputError(msg)
    return {dtype: _number(rate, dtype, origin) * _TERA for dtype, rate in rates.items()}


def _number(value: Any, key: str, origin: str) -> float:
    """Times are divided by these, so nothing may be zero."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value) or value <= 0:
        msg = f"{key} in {origin} must be a number above zero, not {value!r}"
        raise InputError(msg)
    return float(value)


def hardware_toml(hardware: Hardware) -> str:
    """A device in the form that find_hardware reads."""
    rates = ", ".join(f"{dtype} = {rate / _TERA:.6g}" for dtype, rate in hardware.peak_flops.items())
    lines = [
        f"[{hardware.name if _BARE.fullmatch(hardware.name) else _quoted(hardware.name)}]",
        f"title = {_quoted(hardware.title)}",
        f"peak_tflops = {{ {rates} }}",
        f"vector_tflops = {hardware.vector_flops / _TERA:.6g}",
        f"memory_gb = {hardware.memory_bytes / _GIGA:.6g}",
        f"bandwidth_gb_per_s = {hardware.memory_bytes_per_s / _GIGA:.6g}",
        f"launch_us = {hardware.launch_s / _MICRO:.6g}",
        *([] if hardware.link_bytes_per_s is None else [f"link_gb_per_s = {hardware.link_bytes_per_s / _GIGA:.6g}"]),
        *([f"devices = {hardware.devices}"] if hardware.devices > 1 else []),
        f"source = {_quoted(hardware.source)}",
        *([f"note = {_quoted(hardware.note)}"] if hardware.note else []),
    ]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    """A string as TOML writes it, which is as JSON does."""
    return json.dumps(text, ensure_ascii=False)
