"""Hardware presets and the roofline: an op takes as long as its arithmetic, its bytes or its launch."""

import json
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from torchstone.cost.largest_batch import LargestBatches, largest_batches
from torchstone.errors import InputError
from torchstone.record.cost import Bound, CostTable, Hardware, Kind, OpPrediction, Prediction, SignatureCost
from torchstone.record.files import parse_toml, read_text
from torchstone.record.op import OpSignature
from torchstone.record.tensor import stored_bits
from torchstone.record.trace import Trace

# Hardware by name, from the presets or from a file of the same form.


_GIGA = 1e9
_TERA = 1e12
_MICRO = 1e-6
_BARE = re.compile(r"[A-Za-z0-9_-]+")  # names that TOML takes without quotes
_MEBI = 1 << 20
_LEAST, _MOST = 1e-9, 1e15  # of a number in a file, in its unit
_REQUIRED = ("peak_tflops", "memory_mib", "bandwidth_gb_per_s")
_OTHER_NAMES = {"t3000": "t3k"}
_MARKETING_MEMORY = "memory_gb"  # files written before `memory_mib`: 10^9 bytes
_NUMBERS = frozenset((*_REQUIRED, _MARKETING_MEMORY, "vector_tflops", "launch_us", "link_gb_per_s"))
_KNOWN = frozenset(
    (
        *_REQUIRED,
        _MARKETING_MEMORY,
        "title",
        "vector_tflops",
        "launch_us",
        "link_gb_per_s",
        "devices",
        "source",
        "note",
        "convention",
        "as_of",
        "tile",
        "caching_allocator",
        "unconfirmed",
    )
)


def presets() -> dict[str, Hardware]:
    """The devices that ship with torchstone, by name."""
    text = files("torchstone.cost").joinpath("presets.toml").read_text(encoding="utf-8")
    return _read(text, origin="the presets")


def find_hardware(name: str) -> Hardware:
    """A preset, or the device of a file.toml; file.toml::NAME where it holds several."""
    path, _, wanted = name.partition("::")
    if not path.endswith(".toml"):
        known = presets()
        short = _OTHER_NAMES.get(name.lower(), name.lower())
        if short in known:
            return known[short]
        msg = f"there is no hardware {name!r}; choose one of {', '.join(known)}, or give a file.toml"
        raise InputError(msg)
    found = _read(read_text(Path(path)), origin=path)
    if not wanted and len(found) == 1:
        return next(iter(found.values()))
    if wanted in found:
        return found[wanted]
    if not found:
        msg = f"{path} describes no device; `torchstone hardware show n150` prints one to start from"
        raise InputError(msg)
    msg = f"{path} holds {', '.join(found)}; choose with {path}::NAME"
    raise InputError(msg)


def one_of_several(hardware: Hardware) -> Hardware:
    """One of the devices that a preset takes as one, such as a chip of a board; the device itself where it is one."""
    count = hardware.devices
    if count == 1:
        return hardware
    return replace(
        hardware,
        title=f"{hardware.title}, one of {count}",
        peak_flops={dtype: rate / count for dtype, rate in hardware.peak_flops.items()},
        vector_flops=hardware.vector_flops / count,
        memory_bytes=hardware.memory_bytes // count,
        memory_bytes_per_s=hardware.memory_bytes_per_s / count,
        devices=1,
    )


def _read(text: str, *, origin: str) -> dict[str, Hardware]:
    return {name: _hardware(name, values, origin) for name, values in parse_toml(text, origin=origin).items()}


def _hardware(name: str, values: object, origin: str) -> Hardware:
    if not isinstance(values, Mapping):
        msg = f"{origin} must hold a table [{name}] with {', '.join(_REQUIRED)}, not a value"
        raise InputError(msg)
    missing = [
        key for key in _REQUIRED if key not in values and not (key == "memory_mib" and _MARKETING_MEMORY in values)
    ]
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
        memory_bytes=_memory_bytes(values, origin),
        memory_bytes_per_s=number("bandwidth_gb_per_s", 0) * _GIGA,
        launch_s=0.0 if _is_zero(values.get("launch_us", 0)) else number("launch_us", 0) * _MICRO,
        link_bytes_per_s=None if link is None else _number(link, "link_gb_per_s", origin) * _GIGA,
        devices=_whole(values.get("devices", 1), "devices", origin),
        source=str(values.get("source", origin)),
        note=str(values.get("note", "")),
        convention=str(values.get("convention", "")),
        as_of=str(values.get("as_of", "")),
        tile=_whole(values["tile"], "tile", origin) if "tile" in values else None,
        unconfirmed=_unconfirmed(values, peak, origin),
        caching_allocator=_yes_or_no(values.get("caching_allocator", False), "caching_allocator", origin),
    )


def _unconfirmed(values: Mapping[str, object], peak: Mapping[str, float], origin: str) -> tuple[str, ...]:
    """The keys of some numbers; a rate may be named by its element type."""
    named: Any = values.get("unconfirmed", ())
    known = {key for key in values if key in _NUMBERS} | {f"peak_tflops.{dtype}" for dtype in peak}
    listed = isinstance(named, Sequence) and not isinstance(named, str)
    wrong = [one for one in named if not isinstance(one, str) or one not in known] if listed else [named]
    if wrong:
        msg = f"unconfirmed in {origin} must list keys of this device, such as peak_tflops, not {wrong[0]!r:.40}"
        raise InputError(msg)
    return tuple(named)


def _memory_bytes(values: Mapping[str, object], origin: str) -> int:
    if "memory_mib" in values and _MARKETING_MEMORY in values:
        msg = f"{origin} gives both memory_mib and {_MARKETING_MEMORY}; keep memory_mib, what an allocator can be given"
        raise InputError(msg)
    key, unit = ("memory_mib", _MEBI) if "memory_mib" in values else (_MARKETING_MEMORY, _GIGA)
    return max(1, int(_number(values[key], key, origin) * unit))


def _peak(name: str, rates: object, origin: str) -> dict[str, float]:
    if not isinstance(rates, Mapping) or not rates:
        msg = f"[{name}] in {origin} must name rates by element type, as in peak_tflops = {{ bfloat16 = 100 }}"
        raise InputError(msg)
    unknown = [dtype for dtype in rates if dtype not in _RATED and stored_bits(dtype) is None]
    if unknown:
        msg = f"peak_tflops in {origin} names an unknown element type {unknown[0]!r:.40}; {', '.join(_RATED)} are known"
        raise InputError(msg)
    return {dtype: _number(rate, dtype, origin) * _TERA for dtype, rate in rates.items()}


def _is_zero(value: object) -> bool:
    """Whether a number is zero, as the launch of an op alone may be."""
    return isinstance(value, int | float) and not isinstance(value, bool) and value == 0


def _number(value: object, key: str, origin: str) -> float:
    """Times are divided by these, so nothing may be zero, nor so small or large that a quotient is."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not _LEAST <= value <= _MOST:
        msg = f"{key} in {origin} must be a number above zero, not {value!r:.40}; from {_LEAST:g} to {_MOST:g} is read"
        raise InputError(msg)
    return float(value)


def _whole(value: object, key: str, origin: str) -> int:
    number = _number(value, key, origin)
    if not number.is_integer():
        msg = f"{key} in {origin} must be a whole number, not {value!r}"
        raise InputError(msg)
    return int(number)


def _yes_or_no(value: object, key: str, origin: str) -> bool:
    if not isinstance(value, bool):
        msg = f"{key} in {origin} must be true or false, not {value!r:.40}"
        raise InputError(msg)
    return value


def hardware_toml(hardware: Hardware) -> str:
    """A device in the form that find_hardware reads."""
    rates = ", ".join(f"{dtype} = {rate / _TERA:.6g}" for dtype, rate in hardware.peak_flops.items())
    lines = [
        f"[{hardware.name if _BARE.fullmatch(hardware.name) else _quoted(hardware.name)}]",
        f"title = {_quoted(hardware.title)}",
        f"peak_tflops = {{ {rates} }}",
        f"vector_tflops = {hardware.vector_flops / _TERA:.6g}",
        f"memory_mib = {hardware.memory_bytes / _MEBI:.10g}",
        f"bandwidth_gb_per_s = {hardware.memory_bytes_per_s / _GIGA:.6g}",
        f"launch_us = {hardware.launch_s / _MICRO:.6g}",
        *([] if hardware.link_bytes_per_s is None else [f"link_gb_per_s = {hardware.link_bytes_per_s / _GIGA:.6g}"]),
        *([f"devices = {hardware.devices}"] if hardware.devices > 1 else []),
        *([] if hardware.tile is None else [f"tile = {hardware.tile}"]),
        *(["caching_allocator = true"] if hardware.caching_allocator else []),
        f"source = {_quoted(hardware.source)}",
        *(
            f"{name} = {_quoted(text)}"
            for name, text in (("convention", hardware.convention), ("as_of", hardware.as_of), ("note", hardware.note))
            if text
        ),
        *([f"unconfirmed = {json.dumps(hardware.unconfirmed)}"] if hardware.unconfirmed else []),
    ]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    """A string as TOML writes it, which is as JSON does."""
    return json.dumps(text, ensure_ascii=False)


# The roofline: an op takes as long as its arithmetic, its bytes or its launch, whichever is longest. This is a
# prediction of what the hardware allows, not a measurement; real kernels reach a part of it.


_RATES = {  # formats that are multiplied at the rate of an element type, by how their names begin
    "float8": "float8", "mxfp8": "float8", "mxfp6": "float8", "float4": "float4", "mxfp4": "float4", "nvfp4": "float4",
    "int8": "int8", "int4": "int8", "bfloat8_b": "block_float8", "bfloat4_b": "block_float8",
}  # fmt: skip
_FALLBACKS = {
    "float16": ("bfloat16", "tfloat32", "float32"),
    "bfloat16": ("float16", "tfloat32", "float32"),
    "float32": ("tfloat32", "bfloat16", "float16"),
    "float64": ("float32", "bfloat16"),
    "int8": ("float8", "bfloat16", "float16", "float32"),
    "float8": ("int8", "bfloat16", "float16", "float32"),
    "float4": ("float8", "int8", "bfloat16", "float16", "float32"),
    "block_float8": ("bfloat16", "float16", "float32"),
}
_RATED = ("tfloat32", *_FALLBACKS)  # names of rates; any other element type of torch may have one of its own
BASIS = "a roofline: a bound by published rates, not a measurement"
_MATMULS = frozenset((Kind.MATMUL, Kind.CONVOLUTION, Kind.ATTENTION, Kind.RECURRENT))


def predict(trace: Trace, table: CostTable, hardware: Hardware, *, states_bytes: int = 0) -> Prediction:
    """The time of each op, of each module and of the whole, by the limits of a device.

    The states of an optimiser are held beside everything else.
    """
    roof = _Roof(hardware, multiply_add=table.conventions.multiply_add)
    signatures = tuple(
        roof.prediction(signature, cost)
        for signature, cost in zip(trace.recorded_ops.signatures, table.signatures, strict=True)
    )
    by_bound = dict.fromkeys(Bound, 0.0)
    for found, cost in zip(signatures, table.signatures, strict=True):
        if found is not None:
            by_bound[found.bound] += found.seconds * cost.calls
    failed = trace.failure is not None
    batches = LargestBatches() if failed else largest_batches(trace, table, hardware.memory_bytes - states_bytes)
    reserved = table.peak.reserved_bytes if hardware.caching_allocator and not states_bytes else None
    prediction = Prediction(
        hardware=hardware,
        total_s=sum(by_bound.values()),
        by_bound_s=by_bound,
        fused_s=_fused(trace, table, roof),
        ideal_s=_ideal(trace, table, roof),
        modules_s=_by_module(trace, signatures),
        signatures=signatures,
        fits=table.peak.total_bytes + states_bytes <= hardware.memory_bytes and not (table.peak.unsized or failed),
        peak_bytes=table.peak.total_bytes + states_bytes,
        largest_batch=batches.ideal.least,
        largest_batch_at_most=batches.ideal.most,
        eager_peak_bytes=None if table.peak.eager_bytes is None else table.peak.eager_bytes + states_bytes,
        eager_largest_batch=batches.eager.least,
        eager_largest_batch_at_most=batches.eager.most,
        reserved_peak_bytes=reserved,
        captured_batch=batches.captured,
        largest_batch_unknown=batches.unknown,
        notes=(*roof.notes(), *_allocator_notes(trace, hardware, reserved)),
        unsized=table.peak.unsized,
        ended_early=failed,
        basis=BASIS,
    )
    return replace(prediction, fits_in_memory=prediction.verdict)


def _allocator_notes(trace: Trace, hardware: Hardware, reserved: int | None) -> tuple[str, ...]:
    if not hardware.caching_allocator or reserved is not None:
        return ()
    if trace.provenance.reused_ops:
        why = "equal layers were not run; --no-reuse runs them"
    elif trace.eager_memory is None:
        why = "eager lifetimes were not observed"
    else:
        why = "the sizes are not those of the run"
    return (f"what PyTorch's caching allocator reserves, with rounding and fragmentation, is not known: {why}",)


def rated_as(hardware: Hardware, dtype: str) -> tuple[str, bool]:
    """The element type whose rate a matmul of this one has, and whether that stands in for a rate of its own."""
    rates = hardware.peak_flops
    family = next((rate for start, rate in _RATES.items() if dtype.startswith(start)), dtype)
    own = next((one for one in (dtype, family) if one in rates), None)
    if own is not None:
        return own, False
    return next((other for other in _FALLBACKS.get(family, ()) if other in rates), next(iter(rates))), True


class _Roof:
    """The limits of one device, and which of them had to stand in for others."""

    def __init__(self, hardware: Hardware, *, multiply_add: int) -> None:
        self.hardware = hardware
        self._per_matmul_flop = 2 / multiply_add  # peaks count a multiply-add as two
        self._stood_in: dict[str, str] = {}

    def prediction(self, signature: OpSignature, cost: SignatureCost) -> OpPrediction | None:
        if cost.kind is Kind.UNPRICED:
            return None
        moved = cost.bytes_read + cost.bytes_written
        intensity = cost.flops / moved if moved else None
        if not moved and not cost.flops:  # views, and memory that is only set aside
            return OpPrediction(seconds=0.0, bound=Bound.LAUNCH, intensity=None)
        times = {
            Bound.COMPUTE: self.compute_s(signature, cost),
            Bound.MEMORY: moved / self.hardware.memory_bytes_per_s,
            Bound.LAUNCH: self.hardware.launch_s,
        }
        bound = max(times, key=lambda one: times[one])
        return OpPrediction(seconds=times[bound], bound=bound, intensity=intensity)

    def compute_s(self, signature: OpSignature, cost: SignatureCost) -> float:
        """Matmuls at the rate of their element type, the rest at that of vectors."""
        matmul = cost.matmul_flops * self._per_matmul_flop
        rest = cost.flops - cost.matmul_flops
        peak = self._peak(signature) if matmul else 1.0
        return matmul / peak + rest / self.hardware.vector_flops

    def _peak(self, signature: OpSignature) -> float:
        """The rate of the widest type that is multiplied: narrower operands are converted to it first."""
        specs = [spec for spec in signature.input_specs if _is_arithmetic(spec.dtype)]
        multiplied = [spec for spec in specs if len(spec.shape) > 1] or specs  # a bias is added
        dtype = max((spec.dtype for spec in multiplied), key=lambda one: stored_bits(one) or 0, default="float32")
        used, stands_in = rated_as(self.hardware, dtype)
        if stands_in:
            self._stood_in[dtype] = used
        return self.hardware.peak_flops[used]

    def notes(self) -> tuple[str, ...]:
        return tuple(
            f"{self.hardware.name} has no rate for {dtype}: that of {used} was taken"
            for dtype, used in self._stood_in.items()
        )


def _is_arithmetic(dtype: str) -> bool:
    return dtype.startswith(("float", "bfloat", "int8", "uint8", "complex", *_RATES))


def _fused(trace: Trace, table: CostTable, roof: _Roof) -> float:
    """Matmuls and the like keep their own time; all other traffic is scaled to what fused kernels move."""
    own = rest_bytes = rest_compute = 0.0
    for signature, cost in zip(trace.recorded_ops.signatures, table.signatures, strict=True):
        found = roof.prediction(signature, cost)
        if found is None:
            continue
        if cost.kind in _MATMULS:
            own += found.seconds * cost.calls
        else:
            rest_bytes += (cost.bytes_read + cost.bytes_written) * cost.calls
            rest_compute += roof.compute_s(signature, cost) * cost.calls
    saved = table.traffic.unfused.total_bytes - table.traffic.fused.total_bytes
    left = max(rest_bytes - saved, 0.0) / roof.hardware.memory_bytes_per_s
    return own + max(left, rest_compute)


def _ideal(trace: Trace, table: CostTable, roof: _Roof) -> float:
    compute = sum(
        roof.compute_s(signature, cost) * cost.calls
        for signature, cost in zip(trace.recorded_ops.signatures, table.signatures, strict=True)
        if cost.kind is not Kind.UNPRICED
    )
    return max(compute, table.traffic.compulsory.total_bytes / roof.hardware.memory_bytes_per_s)


def _by_module(trace: Trace, signatures: Sequence[OpPrediction | None]) -> tuple[float, ...]:
    seconds = [0.0] * len(trace.modules)
    ran_in = trace.module_calls.modules
    for call, signature in zip(trace.ops.module_calls, trace.ops.signature_of, strict=True):
        found = signatures[signature]
        if found is not None and seconds:
            seconds[ran_in[call] if call >= 0 else 0] += found.seconds
    for module in range(len(seconds) - 1, 0, -1):
        seconds[trace.modules[module].parent] += seconds[module]
    return tuple(seconds)
