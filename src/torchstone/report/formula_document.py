"""The JSON documents of `torchstone formula`, each with its schema."""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from torchstone.formula.algebra.growth import FASTEST, DominantRange, Growth, Solution
from torchstone.formula.database.changes import Change
from torchstone.formula.language.expression import Expression, Value
from torchstone.formula.language.print import show
from torchstone.record.formula import FormulaEntry, Quantity, TradeOff

if TYPE_CHECKING:
    from torchstone.formula.derive.validate import Difference

LIST_SCHEMA = "torchstone/formulas/1"
ENTRY_SCHEMA = "torchstone/formula/1"
VALUE_SCHEMA = "torchstone/formula_value/1"
GROWTH_SCHEMA = "torchstone/formula_growth/1"
DOMINANCE_SCHEMA = "torchstone/formula_dominance/1"
SOLUTION_SCHEMA = "torchstone/formula_solution/1"
DERIVE_SCHEMA = "torchstone/formula_derive/1"
DIFF_SCHEMA = "torchstone/formula_diff/1"
AGENT_SCHEMA = "torchstone/formula_agent/1"
TRADE_OFF_SCHEMA = "torchstone/formula_trade_off/1"
VALIDATION_SCHEMA = "torchstone/formula_validation/1"


def list_document(entries: Mapping[str, FormulaEntry], own: frozenset[str], mistakes: Sequence[str]) -> str:
    """The entries by key, and the mistakes in the database."""
    rows = [
        {
            "key": key,
            "module_path": entry.module_path,
            "variant": entry.variant,
            "aliases": list(entry.aliases),
            "parameters": list(entry.all_parameters),
            "status": entry.validation.status,
            "points_checked": None if entry.evidence is None else entry.evidence.points_checked,
            "own": key in own,
        }
        for key, entry in entries.items()
    ]
    return json.dumps({"schema": LIST_SCHEMA, "formulas": rows, "mistakes": list(mistakes)}, indent=1)


def entry_document(entry: FormulaEntry, formulas: Mapping[Quantity, Expression]) -> str:
    """One entry, its formulas as text, and its evidence; a quantity that is not known is null."""
    unknown = dict.fromkeys(("flops", "reads", "writes"))
    found = {str(quantity): show(tree) for quantity, tree in formulas.items()}
    record = msgspec.to_builtins(entry)
    document = {"schema": ENTRY_SCHEMA, "entry": record, **unknown, **found, "evidence": record["evidence"]}
    return json.dumps(document, indent=1)


def values_document(module_path: str, parameters: Mapping[str, Value], values: Mapping[Quantity, Value]) -> str:
    """The value of each quantity; a fraction is a text, since JSON has none."""
    numbers = {name: _number(value) for name, value in parameters.items()}
    found = {str(quantity): _number(value) for quantity, value in values.items()}
    return json.dumps({"schema": VALUE_SCHEMA, "module_path": module_path, "parameters": numbers, **found}, indent=1)


def _number(value: Value) -> int | str:
    return int(value) if value == int(value) else str(value)


def growth_document(name: str, found: Mapping[Quantity, Sequence[Growth]]) -> str:
    """The power of each parameter that each quantity grows with; null where it grows faster than any power."""
    quantities = {
        str(quantity): [
            {
                "parameter": growth.parameter,
                "order": growth.order if growth.order < FASTEST else None,
                "text": growth.text,
                "leading": None if growth.leading is None else show(growth.leading),
            }
            for growth in growths
        ]
        for quantity, growths in found.items()
    }
    return json.dumps({"schema": GROWTH_SCHEMA, "name": name, "growth": quantities}, indent=1)


def dominance_document(
    name: str, parameter: str, found: Mapping[Quantity, tuple[Sequence[DominantRange], Sequence[DominantRange]]]
) -> str:
    """The largest term and the largest power of each quantity, from which value of a parameter on."""
    quantities = {
        str(quantity): {"terms": list(map(_range, terms)), "powers": list(map(_range, powers))}
        for quantity, (terms, powers) in found.items()
    }
    document = {"schema": DOMINANCE_SCHEMA, "name": name, "parameter": parameter, "dominant": quantities}
    return json.dumps(document, indent=1)


def _range(one: DominantRange) -> dict[str, object]:
    return {"from": one.first, "part": one.part, "share": one.share}


def solution_document(
    module_path: str, parameter: str, limit: int, solution: Solution | None, costs: Mapping[Quantity, Value]
) -> str:
    """The largest value of a parameter that fits a limit; null where none does."""
    document = {
        "schema": SOLUTION_SCHEMA,
        "module_path": module_path,
        "parameter": parameter,
        "limit": limit,
        "value": None if solution is None else solution.value,
        "proven": None if solution is None else solution.proven,
        "costs": {str(quantity): _number(cost) for quantity, cost in costs.items()},
    }
    return json.dumps(document, indent=1)


def trade_off_document(found: TradeOff) -> str:
    """Memory and time over one unknown on a device, and where compute-bound turns memory-bound."""
    document = {
        "schema": TRADE_OFF_SCHEMA,
        "module_path": found.module_path,
        "parameter": found.parameter,
        "hardware": found.hardware.name,
        "devices": found.devices,
        "element_type": found.element_type,
        "limit": found.memory_bytes,
        "value": found.fits,
        "bounds": [{"from": first, "bound": bound} for first, bound in found.bounds],
        "series": [
            {
                "value": one.value,
                "memory_bytes": one.memory_bytes,
                "fits": one.memory_bytes <= found.memory_bytes,
                "compute_s": one.compute_s,
                "traffic_s": one.traffic_s,
                "bound": one.bound,
            }
            for one in found.points
        ],
    }
    return json.dumps(document, indent=1)


def derived_document(entries: Sequence[FormulaEntry], refused: Mapping[str, str]) -> bytes:
    """Derived entries, and the reason for each class without one."""
    return msgspec.json.encode({"schema": DERIVE_SCHEMA, "entries": entries, "refused": refused})


def changes_document(changes: Sequence[Change]) -> bytes:
    """How formulas changed from one database to another, term by term."""
    rows = [
        {
            "name": change.name,
            "kind": change.kind,
            "versions": change.versions,
            "fields": {field: {"removed": old, "added": new} for field, (old, new) in change.fields.items()},
        }
        for change in changes
    ]
    return msgspec.json.encode({"schema": DIFF_SCHEMA, "changes": rows})


def agent_document(module_path: str, entry: FormulaEntry | None, problems: Sequence[str]) -> str:
    """The accepted entry or null, and what was wrong with the refused answers."""
    return json.dumps(
        {
            "schema": AGENT_SCHEMA,
            "module_path": module_path,
            "accepted": entry is not None,
            "problems": list(problems),
            "entry": msgspec.to_builtins(entry),
        },
        indent=1,
    )


def validation_document(
    agree: Mapping[str, int],
    differences: "Sequence[Difference]",
    outside: Mapping[str, str],
    not_built: Sequence[str],
    refuted: Mapping[str, str] | None = None,
) -> bytes:
    """Calls that agree by entry, differences, and entries that could not be compared."""
    rows = [
        {
            "module_path": one.module_path,
            "variant": one.variant,
            "quantity": one.quantity,
            "parameters": dict(one.parameters),
            "computed": str(one.computed),
            "measured": one.measured,
            "term": one.term,
        }
        for one in differences
    ]
    not_compared = {**outside, **dict.fromkeys(not_built, "")}
    return msgspec.json.encode(
        {
            "schema": VALIDATION_SCHEMA,
            "agree": agree,
            "differ": rows,
            "refuted": refuted or {},
            "not_compared": not_compared,
        }
    )
