"""operators.json and operators.csv: module types and aten ops with counts, shapes, types, attributes and where."""

from collections import Counter, defaultdict
from typing import Any

import msgspec

from torchstone.record.trace import Trace
from torchstone.report.spreadsheet import write_csv
from torchstone.report.view.modules import attributes_text
from torchstone.report.view.operators import NO_MODULE, operator_rows, use_rows, variant_rows

SCHEMA = "torchstone/operators/1"
_OUTSIDE = "(outside any module)"
_ROOT = "(root)"


def operators_json(trace: Trace) -> bytes:
    """All operators and module types."""
    used_in = _users(trace)
    variants: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in variant_rows(trace):
        variants[row.op].append({"arguments": row.arguments, "output": row.output, "calls": row.calls})
    document = {
        "schema": SCHEMA,
        "model": trace.provenance.model,
        "calls": len(trace.ops),
        "operators": [
            {
                "op": row.op,
                "function": torch_function(row.op),
                "calls": row.calls,
                "dtypes": row.dtypes,
                "variants": variants[row.op],
                "modules": used_in[row.op],
            }
            for row in operator_rows(trace)
        ],
        "module_types": _module_types(trace),
    }
    return msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n"


def operators_csv(trace: Trace) -> bytes:
    """One line per operator with one set of shapes and arguments."""
    names = ("op", "function", "calls", "arguments", "output")
    rows = ((row.op, torch_function(row.op), row.calls, row.arguments, row.output) for row in variant_rows(trace))
    return write_csv(names, rows)


def torch_function(op: str) -> str:
    """The name under which people know an op: aten.mm.default is mm."""
    return op.split(".")[1] if op.count(".") > 1 else op


def _users(trace: Trace) -> dict[str, list[str]]:
    found: defaultdict[str, list[str]] = defaultdict(list)
    for use in use_rows(trace):
        found[use.op].append(_OUTSIDE if use.module == NO_MODULE else trace.modules[use.module].path or _ROOT)
    return found


def _module_types(trace: Trace) -> list[dict[str, Any]]:
    calls = Counter(trace.module_calls.modules)
    members: defaultdict[str, list[int]] = defaultdict(list)
    for index, module in enumerate(trace.modules):
        members[module.class_name].append(index)
    return [
        {
            "class": name,
            "modules": len(found),
            "calls": sum(calls[index] for index in found),
            "attributes": sorted({attributes_text(trace, index) for index in found}),
            "paths": [trace.modules[index].path or _ROOT for index in found],
        }
        for name, found in sorted(members.items(), key=lambda item: (-len(item[1]), item[0]))
    ]
