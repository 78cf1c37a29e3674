"""Entries of a model type + one symbolic run -> which of them the second route confirms."""

from collections.abc import Mapping
from dataclasses import replace

import msgspec
import torch

from torchstone.formula.database import Formulas
from torchstone.formula.derive.built_models import Options, build_on_cpu, plan_of
from torchstone.formula.derive.op_forms import Price
from torchstone.formula.derive.reading import BATCH, LENGTH
from torchstone.formula.derive.symbolic_route import confirmed, new_mode, run_symbolically
from torchstone.models.pretrained import quiet_and_offline
from torchstone.record.formula import FormulaEntry

SYMBOLIC = "symbolic"
_BFLOAT16_BYTES = 2  # which all kernels take, those for experts too


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
            model = build_on_cpu(model_type, plan, values, replace(options, dtype="bfloat16"))
        with quiet_and_offline():
            costs = run_symbolically(model, tokens, price, mode)
    except Exception as error:  # noqa: BLE001 - torch and models raise anything where they need values, and that is a result
        return {}, f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"
    formulas = Formulas(entries=entries)
    return confirmed(costs, formulas, plan.parameters(values), dtype_bytes=_BFLOAT16_BYTES, variant=variant), ""


def with_symbolic_route(entry: FormulaEntry) -> FormulaEntry:
    """The entry with the second route in its evidence."""
    evidence = entry.evidence
    if evidence is None or SYMBOLIC in evidence.routes:
        return entry
    return msgspec.structs.replace(
        entry, evidence=msgspec.structs.replace(evidence, routes=(*evidence.routes, SYMBOLIC))
    )
