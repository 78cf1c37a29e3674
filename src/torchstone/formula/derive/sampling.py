"""Settings -> samples: each module is built, measured and forgotten."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from torchstone.formula.derive.built_models import Options, build_at
from torchstone.formula.derive.built_modules import RECIPES
from torchstone.formula.derive.observation import Sample
from torchstone.formula.derive.op_forms import Price, RefusedError
from torchstone.formula.derive.plans import Plan
from torchstone.record.cost import CostTable
from torchstone.record.trace import Trace

Measure = Callable[[Any, Any], tuple[Trace, CostTable]]  # module and inputs -> what ran, and what it cost
DTYPES = ("float32", "bfloat16")
_NEXT_DTYPE = 31  # points for the next element type begin there


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What a derivation measures with: capture and prices, which live in other stages."""

    measure: Measure
    price: Price


def sample_module(name: str, bench: Bench) -> Iterator[Sample]:
    """A class of torch.nn at all its settings."""
    recipe = RECIPES[name]
    for dtype in DTYPES:
        for choice in recipe.choices():
            for point in recipe.points():
                trace, table = bench.measure(*recipe.make(point.values, choice, dtype))
                _refuse_failure(trace)
                yield Sample(trace=trace, table=table, held_out=point.held_out)


def sample_model(model_type: str, plan: Plan, bench: Bench, options: Options) -> Iterator[Sample]:
    """A model type at all points of its plan, in each element type."""
    for number, dtype in enumerate(DTYPES):
        for point in plan.points(number * _NEXT_DTYPE):
            path = Options(dtype=dtype, attention=options.attention, use_cache=options.use_cache)
            built = build_at(model_type, plan, point.values, path)
            trace, table = bench.measure(built.model, built.inputs)
            if trace.failure is not None and point.guard:
                continue  # a size that the model does not take has no cost to compare with
            _refuse_failure(trace)
            yield Sample(
                trace=trace, table=table, known=built.known, held_out=point.held_out, guard=point.guard
            )


def _refuse_failure(trace: Trace) -> None:
    if trace.failure is not None:
        failure = trace.failure
        msg = f"{trace.provenance.model} cannot be run: {failure.error} (in {failure.module or 'the root'})"
        raise RefusedError(msg)
