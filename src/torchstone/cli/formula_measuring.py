"""A recipe for modules + settings of its parameters -> what each of them costs, measured by capturing it."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from torchstone.cli.formula_recipe import Recipe, load_recipe
from torchstone.cli.options import Session
from torchstone.cli.progress import step
from torchstone.errors import MissingExtraError, ModelError

if TYPE_CHECKING:
    from torchstone.record.formula import MeasuredCost


def measure_all(
    recipe: str, class_path: str, settings: Sequence[Mapping[str, int]], session: Session
) -> "tuple[list[MeasuredCost], dict[str, str]]":
    """Build the module at each setting, run it on tensors without data, and price what it ran; with the versions."""
    from importlib.util import find_spec

    if find_spec("torch") is None:
        raise MissingExtraError(needed_for="measuring a module", extra="torch")
    make = load_recipe(recipe)
    measured: list[MeasuredCost] = []
    versions: dict[str, str] = {}
    for setting in settings:
        shown = ", ".join(f"{name}={value}" for name, value in setting.items())
        with step(f"measuring at {shown}", session):
            cost, versions = _measure(make, recipe, class_path, setting)
            measured.append(cost)
    return measured, versions


def _measure(
    make: Recipe, recipe: str, class_path: str, setting: Mapping[str, int]
) -> "tuple[MeasuredCost, dict[str, str]]":
    from torchstone.capture.capturing import capture
    from torchstone.cost.pricing import price
    from torchstone.formula.names import public_alias
    from torchstone.record.formula import MeasuredCost

    module, inputs = make(setting)
    trace = capture(module, inputs)
    if trace.failure is not None:
        msg = f"the module of {recipe} failed: {trace.failure.error}"
        raise ModelError(msg)
    built = trace.provenance.model
    if class_path not in (built, public_alias(built)):
        msg = f"{recipe} builds {built}, not {class_path}"
        raise ModelError(msg)
    table = price(trace)
    if table.unpriced:
        msg = f"{class_path} runs ops without a price ({', '.join(table.unpriced)}), so its cost is not known"
        raise ModelError(msg)
    totals = table.totals
    cost = MeasuredCost(
        parameters=dict(setting),
        flops=totals.flops,
        reads_bytes=totals.bytes_read,
        writes_bytes=totals.bytes_written,
    )
    return cost, dict(trace.provenance.versions)
