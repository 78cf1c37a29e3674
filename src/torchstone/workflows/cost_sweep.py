"""A model at several sizes -> the cost of each."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from torchstone.errors import InputError
from torchstone.models.inputs import InputOptions
from torchstone.record.base import Record
from torchstone.record.cost import CostSweep, CostTable, SweepPoint
from torchstone.workflows.cost import CostRequest, as_shipped, load_priced_trace, price_trace, pricing_of
from torchstone.workflows.model_source import saved_trace
from torchstone.workflows.progress import SILENT, Progress

SWEEP_FILE = "cost_sweep.json"
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


@dataclass(frozen=True, slots=True, kw_only=True)
class CostSweepRequest:
    """A model to price, and the sizes to price it at."""

    cost: CostRequest
    sweep: str  # NAME=FIRST..LAST or NAME=A,B,C, such as seq_len=128..4096


@dataclass(frozen=True, slots=True, kw_only=True)
class CostSweepOutcome:
    """The cost at each size."""

    parameter: str
    points: tuple[tuple[int, CostTable], ...]  # value of the parameter, and the cost there
    failures: Mapping[int, str]  # value of the parameter -> why the forward pass failed there

    @property
    def failed(self) -> bool:
        """Whether the forward pass failed at any size."""
        return bool(self.failures)

    @property
    def unpriced(self) -> frozenset[str]:
        """The ops that have no price at one of the sizes."""
        return frozenset(op for _, table in self.points for op in table.unpriced)

    @property
    def record(self) -> CostSweep:
        """The outcome as a document: the totals of each size, without its modules and ops."""
        first = self.points[0][1]
        return CostSweep(
            model=first.model,
            parameter=self.parameter,
            conventions=first.conventions,
            hardware=first.prediction.hardware.title if first.prediction else "",
            points=tuple(_point(value, table, self.failures.get(value, "")) for value, table in self.points),
        )


def sweep_cost(request: CostSweepRequest, progress: Progress = SILENT) -> CostSweepOutcome:
    """Capture and price the model at each size.

    Raises InputError for a sweep that cannot be parsed, a saved trace, and options that work on one size only. A
    forward pass that fails at a size is a result (`failures`).
    """
    sweep = parse_sweep(request.sweep)
    _refuse_options_for_one_size(request.cost, sweep)
    points = []
    failures: dict[int, str] = {}
    for value in sweep.values:
        sized = _sized(request.cost, sweep, value)
        trace = load_priced_trace(sized, progress)
        if trace.failure is not None:
            failures[value] = trace.failure.error
        points.append((value, price_trace(trace, as_shipped(trace, pricing_of(sized)))))
    return CostSweepOutcome(parameter=sweep.parameter, points=tuple(points), failures=failures)


def _refuse_options_for_one_size(request: CostRequest, sweep: Sweep) -> None:
    """Raise InputError for options whose result is about one size: a sweep has several."""
    given = {
        "--compare-with": request.compare_with,
        "--tp": request.pricing.devices,
        "--plan": request.plan,
        "--python": request.python,
    }
    wrong = next((name for name, value in given.items() if value is not None), None)
    if wrong is not None:
        msg = f"{wrong} works on one size, but --sweep runs several; drop one of them"
        raise InputError(msg)
    if getattr(request.model.options, sweep.parameter) is not None:
        name = sweep.parameter.replace("_", "-")
        msg = f"--sweep {sweep.parameter} gives the values of --{name}, which is given, too; drop one of them"
        raise InputError(msg)
    if saved_trace(request.model.model) is not None:
        msg = f"{request.model.model} is a saved trace of one size; give --sweep the model itself"
        raise InputError(msg)


def _sized(request: CostRequest, sweep: Sweep, value: int) -> CostRequest:
    changed: dict[str, int] = {sweep.parameter: value}
    options: InputOptions = replace(request.model.options, **changed)  # type: ignore[arg-type]  # a name of parse_sweep
    return replace(request, model=replace(request.model, options=options))


def _point(value: int, table: CostTable, failure: str) -> SweepPoint:
    return SweepPoint(
        value=value,
        totals=table.totals,
        traffic=table.traffic,
        unpriced=table.unpriced,
        predicted_s=table.prediction.total_s if table.prediction else None,
        fits=table.prediction.fits if table.prediction else None,
        eager_peak_bytes=table.peak.eager_bytes,
        verdict=table.prediction.verdict if table.prediction else None,
        failure=failure,
    )
