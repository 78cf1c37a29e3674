"""Entries of a model type + one symbolic run -> which of them the second route confirms."""

from collections.abc import Mapping
from itertools import product

import msgspec
import torch

from torchstone.formula.database import Formulas
from torchstone.formula.derive.built_models import Options, build_on_cpu, plan_of
from torchstone.formula.derive.element_types import Forms
from torchstone.formula.derive.op_forms import Price
from torchstone.formula.derive.plans import WINDOW
from torchstone.formula.derive.reading import BATCH, DTYPE_BYTES, LENGTH
from torchstone.formula.derive.symbolic_route import SymbolicCosts, new_mode, run_symbolically
from torchstone.formula.validate import computed_cost, entry_for
from torchstone.models.pretrained import quiet_and_offline
from torchstone.record.formula import FormulaEntry

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
    try:
        with mode:
            model = build_on_cpu(model_type, plan, values, options)
        with quiet_and_offline():
            costs = run_symbolically(model, tokens, price, mode)
    except Exception as error:  # noqa: BLE001 - torch and models raise anything where they need values, and that is a result
        return {}, f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"
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
            continue  # with a window, the sizes of one run tell about one side of it only
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
