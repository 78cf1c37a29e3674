"""Entries compared with fresh captures of their classes at random points, and with one symbolic run."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from random import Random

import msgspec
import torch

from torchstone.errors import InputError
from torchstone.foreign import foreign_code
from torchstone.formula.database.files import Formulas, short_name
from torchstone.formula.derive.fit import Forms
from torchstone.formula.derive.library import Announce, model_type_of
from torchstone.formula.derive.observe import Observation, observe
from torchstone.formula.derive.op_forms import Price, RefusedError
from torchstone.formula.derive.parameter_binding import BATCH, DTYPE_BYTES, LENGTH
from torchstone.formula.derive.samples import (
    RECIPES,
    Bench,
    build_on_cpu,
    plan_of,
    sample_model_randomly,
    sample_module,
)
from torchstone.formula.derive.sampling_plans import WINDOW
from torchstone.formula.derive.symbolic_run import SymbolicCosts, new_mode, run_symbolically
from torchstone.formula.derive.validate import BACKWARD, Options, Validated, computed_cost, entry_for, validate
from torchstone.models.pretrained import quiet_and_offline
from torchstone.record.formula import FormulaEntry

# --- Fresh captures at random points ---


@dataclass(frozen=True, slots=True)
class Source:
    """Where captures of a class come from: it is built alone, or its model type is."""

    name: str
    variant: str
    alone: bool


def source_of(entry: FormulaEntry, model_types: Iterable[str]) -> Source | None:
    """How an entry can be measured; None where nothing builds its class."""
    if entry.module_path.startswith("torch.nn."):
        name = short_name(entry.module_path)
        return Source(name, "", alone=True) if name in RECIPES else None
    try:
        model_type = model_type_of(entry.module_path, dict.fromkeys(model_types))
    except InputError:
        return None
    return Source(model_type, entry.variant, alone=False)


def validate_sources(
    formulas: Formulas, sources: Iterable[Source], bench: Bench, random: Random, points: int, announce: Announce
) -> Iterator[Validated]:
    """Measure each source at random points and compare every call with its formula."""
    for source in sources:
        announce(f"torch.nn.{source.name}" if source.alone else f"{source.name} {source.variant}".strip())
        try:
            seen = list(_observed(source, bench, random, points))
        except RefusedError as reason:
            msg = f"{reason}; the sizes are random, choose others with --seed"
            raise InputError(msg) from reason
        yield validate(formulas, seen, source.variant)


def _observed(source: Source, bench: Bench, random: Random, points: int) -> Iterator[Observation]:
    if source.alone:
        samples = sample_module(source.name, bench, random=random, count=points)
    else:
        options = options_of(source.variant)
        plan = plan_of(source.name, decode=options.decode)
        chosen = plan.random_points(random, points)
        samples = sample_model_randomly(source.name, plan, bench, options, chosen)
    for sample in samples:
        yield from observe(sample)


def options_of(variant: str) -> Options:
    """The code path of a variant."""
    parts = variant.split("+") if variant else []
    attention = next((part for part in parts if part == "eager"), "")
    return Options(
        attention=attention, use_cache="no_cache" not in parts, decode="decode" in parts, backward=BACKWARD in parts
    )


# --- The second route: one symbolic run ---


SYMBOLIC = "symbolic"
_FLOAT32_BYTES = 4
_GRID = (2, 3, 5, 7)


def confirm_model(
    model_type: str, entries: Mapping[str, FormulaEntry], price: Price, options: Options, variant: str
) -> tuple[dict[str, bool], str]:
    """By class: whether symbolic batch and length lead to the same formula; and why the model could not be run."""
    plan = plan_of(model_type)
    values = plan.points()[0].values
    mode = new_mode()
    tokens = torch.zeros((values[BATCH], values[LENGTH]), dtype=torch.int64)
    with foreign_code() as ran:  # torch and models raise anything where they need values, and that is a result
        with mode:
            model = build_on_cpu(model_type, plan, values, options)
        with quiet_and_offline():
            costs = run_symbolically(model, tokens, price, mode)
    if ran.error is not None:
        return {}, f"{type(ran.error).__name__}: {' '.join(str(ran.error).split())[:160]}"
    formulas = Formulas(entries=entries)
    return confirmed(costs, formulas, plan.parameters(values), dtype_bytes=_FLOAT32_BYTES, variant=variant), ""


def with_symbolic_route(entry: FormulaEntry) -> FormulaEntry:
    """The entry with the second route in its evidence."""
    evidence = entry.evidence
    if evidence is None or SYMBOLIC in evidence.routes:
        return entry
    return msgspec.structs.replace(
        entry, evidence=msgspec.structs.replace(evidence, routes=(*evidence.routes, SYMBOLIC))
    )


def confirmed(
    costs: SymbolicCosts, formulas: Formulas, parameters: Mapping[str, int], *, dtype_bytes: int, variant: str
) -> dict[str, bool]:
    """For each class that both routes know: whether they lead to the same polynomials of batch and length.

    Polynomials of degree 2 that are equal on a grid of 4 by 4 points are equal everywhere.
    """
    result = {}
    for name, forms in costs.by_class.items():
        entry = entry_for(formulas, name, variant)
        given = {**parameters, DTYPE_BYTES: dtype_bytes, BATCH: 0, LENGTH: 0}
        if entry is None or name in costs.ambiguous or not set(entry.all_parameters) <= given.keys() - {WINDOW}:
            continue  # with a window, one run shows one side of it only
        result[name] = all(
            _equal(formulas, entry, {**given, BATCH: batch, LENGTH: length}, forms)
            for batch, length in product(_GRID, repeat=2)
        )
    return result


def _equal(formulas: Formulas, entry: FormulaEntry, values: Mapping[str, int], forms: Forms) -> bool:
    wanted = {name: values[name] for name in entry.all_parameters}
    computed = computed_cost(formulas, entry, wanted)
    point = {name: values[name] for name in (BATCH, LENGTH)}
    return list(computed.values()) == [form.value(point) for form in forms]
