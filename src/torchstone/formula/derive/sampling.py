"""Settings -> samples: each module is built, measured and forgotten."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from torchstone.formula.derive.built_models import Options, build_at
from torchstone.formula.derive.built_modules import RECIPES
from torchstone.formula.derive.observation import Sample
from torchstone.formula.derive.op_forms import Price, RefusedError
from torchstone.formula.derive.pieces import Pieces
from torchstone.formula.derive.plans import Plan, Point
from torchstone.formula.derive.reading import BATCH, LENGTH
from torchstone.record.cost import CostTable
from torchstone.record.trace import Trace

Measure = Callable[[Any, Any], tuple[Trace, CostTable]]  # module and inputs -> what ran, and what it cost
Make = Callable[[Mapping[str, int]], tuple[Any, Any]]  # sizes -> module and inputs
DTYPES = ("float32", "bfloat16")
_NEXT_DTYPE = 31  # points for the next element type begin there


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What a derivation measures with: capture and prices, which live in other stages."""

    measure: Measure
    price: Price
    pieces: Callable[[Trace], Pieces]


def sample_module(name: str, bench: Bench, *, random: Random | None = None, count: int = 1) -> Iterator[Sample]:
    """A class of torch.nn at all its settings, or at random ones."""
    recipe = RECIPES[name]
    for dtype in DTYPES:
        for choice in recipe.choices():
            for point in recipe.points() if random is None else recipe.random_points(random, count):
                trace, table = bench.measure(*recipe.make(point.values, choice, dtype))
                _refuse_failure(trace)
                yield Sample(trace=trace, table=table, pieces=bench.pieces(trace), held_out=point.held_out)


def sample_model(model_type: str, plan: Plan, bench: Bench, options: Options) -> Iterator[Sample]:
    """A model type at all points of its plan, in each element type."""
    for number, dtype in enumerate(DTYPES):
        points = plan.points(number * _NEXT_DTYPE)
        yield from _sample_at(model_type, plan, bench, replace(options, dtype=dtype), points)


def sample_model_randomly(
    model_type: str, plan: Plan, bench: Bench, options: Options, points: Sequence[Point]
) -> Iterator[Sample]:
    """A model type at given points, the element types in turn."""
    for number, point in enumerate(points):
        path = replace(options, dtype=DTYPES[number % len(DTYPES)])
        yield from _sample_at(model_type, plan, bench, path, [point])


def _sample_at(
    model_type: str, plan: Plan, bench: Bench, options: Options, points: Sequence[Point]
) -> Iterator[Sample]:
    for point in points:
        built = build_at(model_type, plan, point.values, options)
        trace, table = bench.measure(built.model, built.inputs)
        if trace.failure is not None and point.guard:
            continue  # a size that the model does not take has no cost to compare with
        _refuse_failure(trace)
        yield Sample(
            trace=trace,
            table=table,
            pieces=bench.pieces(trace),
            known=built.known,
            held_out=point.held_out,
            guard=point.guard,
        )


def sample_recipe(make: Make, sizes: Sequence[str], bench: Bench) -> Iterator[Sample]:
    """A module that a function of sizes builds, in the element types it has."""
    others = [name for name in sizes if name not in (BATCH, LENGTH)]
    plan = Plan(edges={BATCH: (1,)} if BATCH in sizes else {}, free=others)
    for point in plan.points():
        values = {name: point.values[name] for name in sizes}
        if point.guard and point.guard.split()[0] not in sizes:
            continue
        trace, table = bench.measure(*make(values))
        if trace.failure is not None and point.guard:
            continue
        _refuse_failure(trace)
        known = {name: values[name] for name in others}
        yield Sample(
            trace=trace,
            table=table,
            pieces=bench.pieces(trace),
            known=known,
            held_out=point.held_out,
            guard=point.guard,
        )


def _refuse_failure(trace: Trace) -> None:
    if trace.failure is not None:
        failure = trace.failure
        msg = f"{trace.provenance.model} cannot be run: {failure.error} (in {failure.module or 'the root'})"
        raise RefusedError(msg)
