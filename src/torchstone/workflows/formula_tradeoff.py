"""A formula on a device: memory and time over one parameter, and where compute-bound turns memory-bound.

Times are a roofline of the whole call: its FLOPs at the peak rate of the device, and its bytes at the bandwidth, where
every op reads its inputs and writes its outputs. So fused kernels move less. Over several devices, weights, arithmetic
and bytes are divided evenly; live activations are counted in full on each, and communication is not counted.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from torchstone.errors import FormulaError, InputError
from torchstone.formula.algebra.view import FormulaView
from torchstone.formula.database.compute import available_formulas
from torchstone.formula.database.files import Formulas
from torchstone.formula.database.templates import name_of
from torchstone.formula.language.expression import Expression, Number, Value
from torchstone.record.cost import Hardware
from torchstone.record.formula import COMPUTE, TRAFFIC, Quantity, TradeOff, TradeOffPoint

DEVICES = "TP"  # the unknown that is no parameter of a formula: devices that share the weights
_MEMORY = (Quantity.WEIGHTS, Quantity.INTERMEDIATES)
_TIMED = (Quantity.FLOPS, Quantity.READS, Quantity.WRITES)
_MOST_DEVICES = 1 << 16
_BEYOND = 4  # the chart ends at this multiple of the largest value that fits
_ROWS = 16
_ELEMENT_TYPES = {2: ("bfloat16", "float16"), 4: ("float32", "tfloat32"), 8: ("float64",), 1: ("float8", "int8")}


@dataclass(frozen=True, slots=True, kw_only=True)
class TradeOffRequest:
    """An entry, the values of its parameters but one, and the device."""

    name: str
    parameters: Mapping[str, Expression | Value]
    parameter: str  # a parameter of the entry, or TP
    hardware: Hardware
    devices: int = 1  # that share the weights, unless this is the unknown
    memory_bytes: int | None = None  # of one device; None: all that it has


def trade_off(request: TradeOffRequest, formulas: Formulas | None = None) -> TradeOff:
    """Evaluate a formula over one unknown on a device.

    Raises InputError for a device without a rate for the element type, FormulaError for a missing formula or value.
    """
    known = formulas or available_formulas()
    trees = {one: Number(value) if isinstance(value, Value) else value for one, value in request.parameters.items()}
    view = FormulaView(known, known.find(request.name), trees)
    missing = [one for one in (*_MEMORY, *_TIMED) if view.entry.template(one) is None]
    if missing:
        msg = f"{name_of(view.entry)} has no formula for {', '.join(missing)}, so it cannot be placed on a device"
        raise FormulaError(msg)
    element_type = _element_type(view, request.hardware)
    search = _Search(view, request, element_type)
    fits = search.fewest_devices() if request.parameter == DEVICES else search.largest()
    return TradeOff(
        module_path=view.entry.module_path,
        parameter=request.parameter,
        hardware=request.hardware,
        devices=request.devices,
        element_type=element_type,
        memory_bytes=search.memory_bytes,
        fits=fits,
        points=tuple(search.points(fits)),
        bounds=search.bounds(),
    )


def _element_type(view: FormulaView, hardware: Hardware) -> str:
    """The element type whose bytes the formula is evaluated with, as the device names it."""
    size = view.number("dtype_bytes")
    listed = tuple(hardware.peak_flops) if size is None else _ELEMENT_TYPES.get(int(size), ())
    found = next((one for one in listed if one in hardware.peak_flops), None)
    if found is None:
        rates = ", ".join(hardware.peak_flops)
        msg = f"{hardware.name} has no rate for elements of {size} bytes (it has {rates}); give dtype_bytes=2 or 4"
        raise InputError(msg)
    return found


@dataclass(frozen=True, slots=True)
class _Search:
    view: FormulaView
    request: TradeOffRequest
    element_type: str

    @property
    def memory_bytes(self) -> int:
        given = self.request.memory_bytes
        return self.request.hardware.memory_bytes if given is None else given

    def largest(self) -> int | None:
        solution = self.view.largest(_MEMORY, self.request.parameter, self.memory_bytes, devices=self.request.devices)
        return None if solution is None else solution.value

    def fewest_devices(self) -> int | None:
        devices = 1
        while devices <= _MOST_DEVICES:
            if self._point(devices).memory_bytes <= self.memory_bytes:
                return devices
            devices *= 2
        return None

    def points(self, fits: int | None) -> Iterator[TradeOffPoint]:
        last = _BEYOND * (fits or 1)
        values = sorted({fits or 1, *(1 << power for power in range(last.bit_length()) if 1 << power <= last)})
        for value in values[-_ROWS:]:
            if self.request.parameter == DEVICES or self.view.allows(self.request.parameter, value):
                yield self._point(value)

    def _point(self, value: int) -> TradeOffPoint:
        unknown = self.request.parameter
        devices = value if unknown == DEVICES else self.request.devices
        costs = self.view.values_at((*_MEMORY, *_TIMED), "" if unknown == DEVICES else unknown, value)
        rate = self.request.hardware.peak_flops[self.element_type]
        traffic = costs[Quantity.READS] + costs[Quantity.WRITES]
        return TradeOffPoint(
            value=value,
            memory_bytes=int(-(-costs[Quantity.WEIGHTS] // devices) + costs[Quantity.INTERMEDIATES]),
            compute_s=float(costs[Quantity.FLOPS]) / rate / devices,
            traffic_s=float(traffic) / self.request.hardware.memory_bytes_per_s / devices,
        )

    def bounds(self) -> tuple[tuple[int, str], ...]:
        if self.request.parameter == DEVICES:  # both are divided by the number of devices
            return ((1, self._point(1).bound),)
        hardware = self.request.hardware
        seconds = {
            COMPUTE: ((Quantity.FLOPS,), hardware.peak_flops[self.element_type]),
            TRAFFIC: ((Quantity.READS, Quantity.WRITES), hardware.memory_bytes_per_s),
        }
        return tuple((one.first, one.part) for one in self.view.dominant_times(seconds, self.request.parameter))
